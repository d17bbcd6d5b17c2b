"""Collectives on tensors: the C interface's, in order, now or later."""

import atexit
import ctypes as c
import os
import queue
import sys
import threading
import warnings
import weakref
from typing import Any, Literal, Optional, Union, overload

import torch

from ... import library as lib
from .work import Work, _OnCard, _OnHost, _run

_SUMMED = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}  # headroom_dtype
_WORDS = 3  # headroom_dtype of int32: other types are moved as these
_REDUCTIONS = {"sum": 0, "mean": 1}
_increment_version = getattr(torch.autograd.graph, "increment_version", lambda t: None)


class Comm:
    """This process among its ranks. join() makes one; `with` or close() leaves. `gpus` says how tensors on a GPU go, once there was one.

    Sums of float32, bfloat16 and float16 are FP32, in the order of ranks, rounded once. Other types can be moved, not summed. Any shape
    and strides. With later=True a call returns a Work at once; leave its tensors alone until wait() has returned. `what` a call carries is
    compared between ranks, as its size and type are: "layer 3's weight".
    """

    def __init__(self, made: c.c_void_p, gpus: str = "auto", staging_mb: float = 512.0) -> None:
        self._as_parameter_ = made
        self.gpus: str = ""
        self._asked, self._staging = gpus, int(staging_mb * 2**20)
        self._gpu: Optional[torch.device] = None  # the card whose memory goes from card to card
        self.rank: int = lib.library().headroom_comm_rank(made)
        self.ranks: int = lib.library().headroom_comm_ranks(made)
        self._jobs: Optional["queue.SimpleQueue[Any]"] = None
        self._last: Optional[threading.Event] = None
        self._streams: "dict[torch.device, torch.cuda.Stream]" = {}
        self._closed = False
        _open.add(self)

    def __repr__(self) -> str:
        return f"gpu_headroom.torch.dist.Comm(rank={self.rank}, ranks={self.ranks})"

    def __reduce__(self) -> Any:
        raise TypeError("a Comm cannot be copied or pickled: copy or save the module that was wrapped (model.module), and wrap the copy")

    def __enter__(self) -> "Comm":
        return self

    def __exit__(self, kind: Any, error: Optional[BaseException], _: Any) -> None:
        if error is not None:
            self.end(f"{type(error).__name__}: {error}")
        self.close()

    def end(self, why: str) -> None:
        """This rank has failed: the others' calls raise, and say why."""
        if not self._closed:
            lib.library().headroom_comm_end(self, why.encode())

    def close(self) -> None:
        """Leaves, when the others leave too."""
        if self._closed:
            return
        self._finish_begun()
        self._closed = True
        if self._jobs is not None:
            self._jobs.put(None)
        lib.library().headroom_comm_destroy(self)

    # ---- collectives

    def barrier(self) -> None:
        self._finish_begun()
        self._call("headroom_comm_barrier", "", None)

    @overload
    def broadcast(self, tensor: torch.Tensor, root: int = ..., later: Literal[False] = ..., what: str = ...) -> torch.Tensor: ...
    @overload
    def broadcast(self, tensor: torch.Tensor, root: int = ..., *, later: Literal[True], what: str = ...) -> Work: ...
    def broadcast(self, tensor: torch.Tensor, root: int = 0, later: bool = False, what: str = "") -> Union[torch.Tensor, Work]:
        """Rank `root`'s values, in place."""
        name = "broadcast"
        self._written(name, tensor)
        root = self._argument(name, lambda: lib.whole(root, "root", 0, self.ranks - 1, "the rank whose values all get"))

        def call(whole, queue):
            data, count, dtype, back = _as_elements(whole)
            self._call("headroom_comm_broadcast", what, queue, data.data_ptr(), count, dtype, root)
            return back, data

        return self._in_place(tensor, call, later)

    @overload
    def all_reduce(self, tensor: torch.Tensor, reduction: str = ..., later: Literal[False] = ..., what: str = ...) -> torch.Tensor: ...
    @overload
    def all_reduce(self, tensor: torch.Tensor, reduction: str = ..., *, later: Literal[True], what: str = ...) -> Work: ...
    def all_reduce(self, tensor: torch.Tensor, reduction: str = "sum", later: bool = False, what: str = "") -> Union[torch.Tensor, Work]:
        """The ranks' sum or mean, in place."""
        self._written("all_reduce", tensor)
        dtype, how = self._summed("all_reduce", tensor, reduction)

        def call(whole, queue):
            self._call("headroom_comm_all_reduce", what, queue, whole.data_ptr(), whole.numel(), dtype, how)
            return None, whole

        return self._in_place(tensor, call, later)

    @overload
    def all_gather(self, tensor: torch.Tensor, later: Literal[False] = ..., what: str = ...) -> torch.Tensor: ...
    @overload
    def all_gather(self, tensor: torch.Tensor, *, later: Literal[True], what: str = ...) -> Work: ...
    def all_gather(self, tensor: torch.Tensor, later: bool = False, what: str = "") -> Union[torch.Tensor, Work]:
        """[ranks, *tensor.shape]: row r came from rank r."""
        self._tensor("all_gather", tensor)

        def call(part, made, queue):
            data, count, dtype, _ = _as_elements(part)
            whole, _, _, back = _as_elements(made, self.ranks)
            self._call("headroom_comm_all_gather", what, queue, data.data_ptr(), whole.data_ptr(), count, dtype)
            return back, data

        return self._made(tensor, (self.ranks, *tensor.shape), call, later)

    @overload
    def reduce_scatter(self, tensor: torch.Tensor, reduction: str = ..., later: Literal[False] = ..., what: str = ...) -> torch.Tensor: ...
    @overload
    def reduce_scatter(self, tensor: torch.Tensor, reduction: str = ..., *, later: Literal[True], what: str = ...) -> Work: ...
    def reduce_scatter(self, tensor: torch.Tensor, reduction: str = "sum", later: bool = False, what: str = "") -> Union[torch.Tensor, Work]:
        """Of tensors [ranks, ...]: the sum or mean of all ranks' row of this rank."""
        self._tensor("reduce_scatter", tensor)
        dtype, how = self._summed("reduce_scatter", tensor, reduction)
        self._rows("reduce_scatter", tensor)

        def call(whole, made, queue):
            self._call("headroom_comm_reduce_scatter", what, queue, whole.data_ptr(), made.data_ptr(), made.numel(), dtype, how)
            return None, whole

        return self._made(tensor, tuple(tensor.shape[1:]), call, later)

    @overload
    def exchange(self, tensor: torch.Tensor, later: Literal[False] = ..., what: str = ...) -> torch.Tensor: ...
    @overload
    def exchange(self, tensor: torch.Tensor, *, later: Literal[True], what: str = ...) -> Work: ...
    def exchange(self, tensor: torch.Tensor, later: bool = False, what: str = "") -> Union[torch.Tensor, Work]:
        """Of tensors [ranks, ...]: row r goes to rank r, row r of the result came from it."""
        self._tensor("exchange", tensor)
        self._rows("exchange", tensor)

        def call(whole, made, queue):
            mine, count, dtype, _ = _as_elements(whole, self.ranks)
            theirs, _, _, back = _as_elements(made, self.ranks)
            self._call("headroom_comm_exchange", what, queue, mine.data_ptr(), theirs.data_ptr(), count // self.ranks, dtype)
            return back, mine

        return self._made(tensor, tuple(tensor.shape), call, later)

    # ---- what is asked: a wrong call ends the ranks, because the others would wait for it

    def _argument(self, name, check):
        try:
            return check()
        except (TypeError, ValueError, lib.Error) as wrong:
            said = f"{name}: {wrong}"
            self.end(said)
            raise type(wrong)(said) if not isinstance(wrong, lib.Error) else wrong from None

    def _tensor(self, name, tensor):
        def check():
            if not isinstance(tensor, torch.Tensor):
                raise TypeError(f"a {type(tensor).__name__} was given, a tensor is needed")
            if tensor.device.type not in ("cpu", "cuda") or tensor.layout != torch.strided:
                raise ValueError(f"the tensor is {tensor.layout} on {tensor.device}: a dense one on cpu or cuda is needed")
            if tensor.is_cuda and torch.cuda.is_current_stream_capturing():
                raise ValueError("a CUDA graph is being captured: ranks meet on the host, which a graph does not record")

        self._argument(name, check)

    def _written(self, name, tensor):
        self._tensor(name, tensor)

        def check():
            if any(size > 1 and step == 0 for size, step in zip(tensor.shape, tensor.stride())):
                raise ValueError("elements of the tensor share memory (expand), and it is written in place: give a clone of it")

        self._argument(name, check)

    def _summed(self, name, tensor, reduction):
        if tensor.dtype in _SUMMED and reduction in _REDUCTIONS:
            return _SUMMED[tensor.dtype], _REDUCTIONS[reduction]

        def check():
            if tensor.dtype not in _SUMMED:
                raise TypeError(f"sums are of float32, bfloat16 and float16, not of {str(tensor.dtype)[6:]}")
            if reduction not in _REDUCTIONS:
                raise ValueError(f"reduction is {reduction!r}: 'sum' or 'mean'")

        return self._argument(name, check)

    def _rows(self, name, tensor):
        def check():
            if tensor.dim() == 0 or tensor.shape[0] != self.ranks:
                raise ValueError(f"the tensor's shape is {list(tensor.shape)}: its first dimension must be the {self.ranks} ranks")

        self._argument(name, check)

    def _call(self, name, what, queue, *arguments):
        if self._closed:
            raise RuntimeError("this rank has left: its Comm is closed")
        if what:
            lib.call("headroom_comm_carries", self, what.encode())
        if queue is not None:
            queue()
        lib.call(name, self, *arguments)

    # ---- now or later, on the host, from card to card, or from cards through the host

    def _from_card_to_card(self, tensor):
        """Whether calls on this tensor do. All ranks' first call on a GPU joins the GPUs."""
        if not tensor.is_cuda:
            return False
        if not self.gpus:
            self._join_gpus(tensor.device)
        if self._gpu is None:
            return False
        if tensor.device != self._gpu:
            self._argument("cuda", lambda: _raise(ValueError(f"the tensor is on {tensor.device}, and this rank joined the others with {self._gpu}")))
        return True

    def _join_gpus(self, device):
        if self._asked == "host":
            self.gpus = "through the host, as was asked"
            return
        self._finish_begun()
        if self._closed:
            raise RuntimeError("this rank has left: its Comm is closed")
        settings = lib.CommGpu(c.sizeof(lib.CommGpu), device.index, int(self._asked == "nccl"), self._staging)
        torch.cuda.current_stream(device)  # torch's context is there first
        status = lib.library().headroom_comm_join_gpu(self, c.byref(settings))
        if status == 0:
            self._gpu = device
            self.gpus = lib.library().headroom_comm_gpu_route(self).decode()
            return
        why = lib.failed(status)
        if why.status not in ("unsupported", "nccl_error"):
            raise why
        self.gpus = f"through the host: {why}"
        warnings.warn(f"gpu_headroom.torch.dist: tensors on a GPU go through the host, which is slow: {why}", stacklevel=5)

    def _in_place(self, tensor, call, later):
        tensor = tensor.detach()

        def work(_, queue):
            whole = tensor.contiguous() if queue is not None else tensor.cpu().contiguous()
            back, held = call(whole, queue)
            if whole.data_ptr() == tensor.data_ptr() and whole.device == tensor.device:
                _increment_version(tensor)
                return tensor, back, held

            def to_its_place():
                if back is not None:
                    back()
                tensor.copy_(whole)

            return tensor, to_its_place, held

        return self._begin(work, tensor, None, later)

    def _made(self, tensor, shape, call, later):
        tensor = tensor.detach()

        def work(made, queue):
            if queue is not None:
                return (made, *call(tensor.contiguous(), made, queue))
            host, made = tensor.cpu().contiguous(), torch.empty(shape, dtype=tensor.dtype, device="cpu")
            back, _ = call(host, made, None)
            if back is not None:
                back()
            return made.to(tensor.device), None, None

        return self._begin(work, tensor, shape, later)

    def _begin(self, work, tensor, shape, later):
        if self._from_card_to_card(tensor):
            return self._on_cards(work, tensor, shape, later)

        def on_host():
            made, back, _ = work(None, None)
            if back is not None:
                back()
            return made

        if not later:
            self._finish_begun()
            with torch.no_grad():
                return on_host()
        done = _OnHost()
        self._last = done._done
        stream = ready = None
        if tensor.is_cuda:
            done._device = tensor.device
            stream = self._streams.get(tensor.device)
            if stream is None:
                stream = self._streams[tensor.device] = torch.cuda.Stream(tensor.device)
            ready = torch.cuda.current_stream(tensor.device).record_event()
            tensor.record_stream(stream)

        def job():
            try:
                with torch.no_grad(), torch.cuda.stream(stream):
                    if stream is not None and ready is not None:
                        stream.wait_event(ready)
                    done._result = on_host()
                    if stream is not None:
                        done._event = stream.record_event()
            except BaseException as error:  # noqa: BLE001: wait() raises it
                done._error = error
            done._done.set()

        if self._jobs is None:
            self._jobs = queue.SimpleQueue()
            threading.Thread(target=_run, args=(self._jobs,), daemon=True, name="headroom ranks").start()
        self._jobs.put(job)
        return done

    def _on_cards(self, work, tensor, shape, later):
        """On the GPUs' own queues: the host goes on when the other ranks' hosts have come to the call, and at once where the call is begun."""
        self._finish_begun()
        current = torch.cuda.current_stream(tensor.device)
        with torch.no_grad():
            made = None if shape is None else torch.empty(shape, dtype=tensor.dtype, device=tensor.device)
            if not later:
                result, back, _ = work(made, lambda: lib.call("headroom_comm_on_stream", self, current.cuda_stream))
                if back is not None:
                    back()
                return result
            ticket = c.c_int64()
            result, back, held = work(made, lambda: lib.call("headroom_comm_later", self, current.cuda_stream, c.byref(ticket)))
        return _OnCard(self, ticket.value, current, result, back, held)

    def _finish_begun(self):
        """Calls that were begun come first; their errors are wait()'s."""
        if self._last is not None:
            self._last.wait()
            self._last = None


def _as_elements(whole, rows=1):
    """What the C interface moves: (tensor, elements, dtype, what brings them back where they are a copy). Other types go as int32."""
    dtype = _SUMMED.get(whole.dtype)
    if dtype is not None:
        return whole, whole.numel(), dtype, None
    size = whole.numel() * whole.element_size()
    if size % (4 * rows) == 0:
        return whole, size // 4, _WORDS, None
    flat = whole.as_strided((whole.numel(),), (1,)).view(torch.uint8).view(rows, -1)
    words = torch.zeros(rows, (flat.shape[1] + 3) // 4 * 4, dtype=torch.uint8, device=whole.device)
    words[:, : flat.shape[1]] = flat
    return words, words.numel() // 4, _WORDS, lambda: flat.copy_(words[:, : flat.shape[1]])


def _raise(error):
    raise error


_open: "weakref.WeakSet[Comm]" = weakref.WeakSet()


def _leave_all():
    failed = getattr(sys, "last_value", None)
    for comm in list(_open):
        if failed is not None:
            comm.end(f"{type(failed).__name__}: {failed}")
        comm.close()


atexit.register(_leave_all)
os.register_at_fork(after_in_child=_open.clear)  # the parent's ranks are not the child's
