"""Calls that were begun, and the thread that makes them."""

import ctypes as c
import threading
from typing import TYPE_CHECKING, Any, Callable, Optional

import torch

from ... import library as lib

if TYPE_CHECKING:
    from .comm import Comm


class Work:
    """A call that was begun. wait() returns its result. On a GPU the current stream waits for it, and the host does not."""

    _result: Any = None

    def is_completed(self) -> bool:
        raise NotImplementedError

    def wait(self) -> Any:
        raise NotImplementedError


class _OnHost(Work):
    """By the thread that makes calls; of a GPU's tensors, through the host."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._device: Optional[torch.device] = None  # a GPU
        self._error: Optional[BaseException] = None
        self._event: Optional[torch.cuda.Event] = None

    def is_completed(self) -> bool:
        return self._done.is_set() and (self._event is None or self._event.query())

    def wait(self) -> Any:
        self._done.wait()
        if self._error is not None:
            raise self._error
        if self._event is not None:
            current = torch.cuda.current_stream(self._device)
            current.wait_event(self._event)
            self._result.record_stream(current)
        return self._result


class _OnCard(Work):
    """On the queues of the ranks' GPUs. Its tensors' memory is kept until a stream has waited."""

    def __init__(self, comm: "Comm", ticket: int, stream: Any, result: Any, back: "Optional[Callable[[], Any]]", held: Any) -> None:
        self._comm, self._ticket, self._stream, self._result, self._back, self._held = comm, ticket, stream, result, back, held

    def is_completed(self) -> bool:
        done = c.c_int32()
        lib.call("headroom_comm_done", self._comm, self._ticket, c.byref(done))
        return bool(done.value)

    def wait(self) -> Any:
        current = torch.cuda.current_stream(self._stream.device)
        lib.call("headroom_comm_wait", self._comm, self._ticket, current.cuda_stream)
        if self._held is not None:
            if current != self._stream:
                for t in (self._held, self._result):
                    t.record_stream(current)
            if self._back is not None:
                with torch.no_grad():
                    self._back()
            self._held = self._back = None
        return self._result

    def __del__(self) -> None:
        if self._held is None or self._comm._closed:
            return
        # No stream has waited: what takes the memory next comes after the call.
        if lib.library().headroom_comm_wait(self._comm, self._ticket, self._stream.cuda_stream) == 0 and self._back is not None:
            with torch.no_grad(), torch.cuda.stream(self._stream):
                self._back()


def _run(jobs):
    """The thread that makes calls which were begun, in their order."""
    while True:
        job = jobs.get()
        if job is None:
            return
        job()
        del job
