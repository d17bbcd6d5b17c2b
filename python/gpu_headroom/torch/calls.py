"""Calls of the C interface that are checked once: what a problem needs each time is worked out here and kept by shapes and strides."""

import ctypes as c
import functools
import math
import struct
import threading
import weakref
from typing import NamedTuple, Optional

import torch

from .. import arrays
from .. import attention as arrays_attention
from .. import library as lib

NAMES = {getattr(torch, name): name for name in arrays.FLOATS}
KINDS = ("cpu", "cuda")


@functools.lru_cache(maxsize=None)
def _context(device, threads):
    return lib.Context(threads=threads, device=device)


def context_of(t):
    if t.is_cuda:
        return _context(f"cuda:{t.device.index or 0}", 0)
    return _context("cpu", torch.get_num_threads())


def tf32_of(asked, t):
    if asked >= 0:
        return bool(asked)
    if not t.is_cuda or t.dtype != torch.float32:
        return False
    matmul = torch.backends.cuda.matmul
    said = getattr(matmul, "fp32_precision", None)  # since torch 2.9; the older word is refused where both were used
    return said == "tf32" if said is not None else matmul.allow_tf32


MORE = 6  # sink, cu_q, cu_k, pages, random and alibi: what a call may have beside q, k and v
_CODES = {getattr(torch, name): code for name, code in arrays.CODES.items()}
_STRUCTS = lib.ForwardArguments, lib.BackwardArguments
_CREATORS = "headroom_attention_forward_call_create", "headroom_attention_backward_call_create"
pack = {n: struct.Struct(f"={n}Q").pack for n in (7, 12, 13, 18)}  # pointers of a call: forward and backward, without and with more


def _current_stream(index):
    return torch.cuda.current_stream(index).cuda_stream


_stream_of = getattr(torch._C, "_cuda_getCurrentRawStream", _current_stream)


def _in_order(shape):
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


_SMALL = 1 << 20  # bytes
_of_thread = threading.local()


# Of batch, heads and positions, which lies outermost in the memory of a result, and which next. The first is what a projection reads without
# a copy, the second is in order.
ORDERS = (0, 2, 1), (0, 1, 2), (2, 0, 1), (1, 0, 2), (1, 2, 0), (2, 1, 0)


class _Ready:
    """A call of the C interface whose shapes and strides are settled; `copies`: which of the tensors are copied into order before;
    `o_is_like_q`: in shape and strides."""

    __slots__ = ("__weakref__", "copies", "handle", "o_is_like_q")

    def __init__(self, handle, copies):
        self.handle, self.copies, self.o_is_like_q = handle.value, copies, False
        weakref.finalize(self, lib.library().headroom_attention_call_destroy, handle).atexit = False


class _Call:
    """What one problem needs each time, worked out once: the bytes of workspace, the shapes of outputs, calls by their tensors' strides."""

    def __init__(self, context, device, shapes, torch_dtype, options, heads_first, tf32, with_, order):
        (batch, heads, len_q, dim), (k_batch, kv_heads, len_k, dim_v) = shapes
        mask, top_left, window, after, softcap, scale, variant, deterministic, dropout, fp8 = options
        has_sink, documents, pages_of_sequence, has_alibi = with_
        self.context, self.device, self.index, self.heads_first, self.dtype = context, device, device.index, heads_first, torch_dtype
        self.cuda, self.size = device.type == "cuda", torch_dtype.itemsize
        self.problem = arrays_attention.make_problem(
            (batch, len_q, heads, dim), (k_batch, len_k, kv_heads, dim), NAMES[torch_dtype], "full", scale, variant or "flash",
            deterministic, tf32, dim_v, softcap, has_sink, documents, pages_of_sequence, quantise="fp8" if fp8 else None, alibi=has_alibi,
        )  # fmt: skip
        self.problem.mask, self.problem.align, self.problem.window, self.problem.window_after = mask, int(top_left), window, after
        self.problem.dropout = dropout
        saved = arrays_attention.bytes_of("headroom_attention_saved_bytes", context, self.problem)
        if saved:
            raise ValueError(f"variant '{variant}' keeps {saved} bytes beside q, k, v, o and lse: gpu_headroom.torch serves flash variants")
        self.workspace = [  # forward's, and backward's: a cache in pages and fp8 have none
            0 if i and (pages_of_sequence or fp8) else arrays_attention.bytes_of("headroom_attention_workspace_bytes", context, self.problem, i)
            for i in (0, 1)
        ]
        self.more = has_sink or documents > 0 or pages_of_sequence > 0 or dropout != 0 or has_alibi
        self.o_shape, self.o_stride = _shape_and_stride(
            (batch, heads, len_q, dim_v) if heads_first else (batch, len_q, heads, dim_v), heads_first, order
        )
        self.lse_shape = batch, heads, len_q
        one = torch.empty(1, dtype=torch.float32, device=device)  # LSE and workspaces are made like it: the cheapest way to make one
        more = 0 if self.cuda else lib.ALIGNMENT  # torch's allocator for CUDA aligns
        self.one, self.room = one.expand(self.lse_shape), [one.view(torch.uint8)[:1].expand(n + more) if n else None for n in self.workspace]
        self.of_q, self.of_k, self.of_v = (  # shape and strides of dq, dk and dv
            _shape_and_stride((a, n, length, d) if heads_first else (a, length, n, d), heads_first)
            for a, n, length, d in ((batch, heads, len_q, dim), (k_batch, kv_heads, len_k, dim), (k_batch, kv_heads, len_k, dim_v))
        )
        self.o_is_as_dq, self.dk_is_as_dq, self.dv_is_as_dk = self.o_shape == self.of_q[0], self.of_k == self.of_q, self.of_v == self.of_k
        self.ready = {}, {}  # forward and backward, by strides
        self.run = lib.library().headroom_attention_call_run

    def reads(self, shape, stride):
        """Whether kernels read such a tensor in place: not an expanded or transposed gradient, nor a slice off every boundary."""
        width, (length, step) = shape[3], (shape[2], stride[2]) if self.heads_first else (shape[1], stride[1])
        if (width > 1 and stride[3] != 1) or (length > 1 and step < width):
            return False
        if not self.cuda:
            return True
        if any(n > 1 and s <= 0 for n, s in zip(shape, stride)):
            return False
        whole = width * self.size % 16 == 0  # what the fastest kernels load at once
        return not whole or all(n <= 1 or s * self.size % 16 == 0 for n, s in zip(shape[:3], stride[:3]))

    def make_ready(self, which, key, tensors, inputs):
        """The call for these tensors: (name, tensor or None or (shape, stride, dtype)); `inputs` of them are copied where it must be."""
        arguments = _STRUCTS[which](struct_size=c.sizeof(_STRUCTS[which]), flags=lib.TRUST_POINTERS)
        copies = []
        for at, (name, t) in enumerate(tensors):
            if t is None:
                continue
            shape, stride, dtype = t if isinstance(t, tuple) else (tuple(t.shape), t.stride(), t.dtype)
            if at < inputs and not self.reads(shape, stride):
                copies.append(at)
                stride = _in_order(shape)
            if self.heads_first and len(shape) == 4:
                shape, stride = (shape[0], shape[2], shape[1], shape[3]), (stride[0], stride[2], stride[1], stride[3])
            view = getattr(arguments, name)
            view.dtype, view.rank = _CODES[dtype], len(shape)
            view.shape[: len(shape)], view.stride[: len(shape)] = shape, stride
        arguments.workspace.bytes = self.workspace[which]
        handle = c.c_void_p()
        lib.call(_CREATORS[which], self.context, c.byref(self.problem), c.byref(arguments), c.byref(handle))
        if len(self.ready[which]) >= 256:
            self.ready[which].clear()
        ready = self.ready[which][key] = _Ready(handle, tuple(copies))
        return ready

    def make_ready_forward(self, key, q, k, v, sink, cu_q, cu_k, pages, random, alibi):
        o, lse = (self.o_shape, self.o_stride, self.dtype), (self.lse_shape, _in_order(self.lse_shape), torch.float32)
        small = [*_small(sink=sink, cu_q=cu_q, cu_k=cu_k, pages=pages), _numbers(random), *_small(alibi=alibi)]
        ready = self.make_ready(0, key, [("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), *small], 3)
        ready.o_is_like_q = tuple(q.shape) == self.o_shape and key[0] == self.o_stride and 0 not in ready.copies
        return ready

    def key_of(self, q, k, v, *more):
        """By which forward's calls are kept."""
        return q.stride(), k.stride(), v.stride(), *_kinds(more)

    def key_of_backward(self, d_o, dlse, q, k, v, o, *more):
        return d_o.stride(), q.stride(), k.stride(), v.stride(), o.stride(), dlse is None, *_kinds(more)

    def forward(self, q, k, v, *more):
        key = self.key_of(q, k, v, *more)
        ready = self.ready[0].get(key) or self.make_ready_forward(key, q, k, v, *(more or (None,) * MORE))
        return self.run_forward(ready, q, k, v, *more)

    def run_forward(self, ready, q, k, v, *more):
        if ready.copies:
            given = [q, k, v]
            for at in ready.copies:
                given[at] = given[at].clone(memory_format=torch.contiguous_format)
            q, k, v = given
        at_q, at_k, at_v = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if not (at_q and at_k and at_v):
            q, k, v = map(_with_memory, (q, k, v))
            at_q, at_k, at_v = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if self.cuda:
            if (at_q | at_k | at_v) & 15 and self.misplaced(q, k, v):
                return self.forward(*self.placed(q, k, v), *more)
            stream = _stream_of(self.index)
        else:
            stream = None
        o = torch.empty_like(q) if ready.o_is_like_q else q.new_empty_strided(self.o_shape, self.o_stride)
        lse = torch.empty_like(self.one)
        room = self.room[0]  # what is lent lives until the call returns; on CUDA torch's allocator keeps it for what the stream was given
        held = None if room is None else torch.empty_like(room) if self.cuda else self.lend(0)
        lent = 0 if held is None else held.data_ptr() + 255 & -256
        if self.more:
            kept = [t if t is None else t.contiguous() for t in more]
            pointers = pack[13](at_q, at_k, at_v, o.data_ptr(), lse.data_ptr(), 0, lent, *[0 if t is None else t.data_ptr() for t in kept])
            status = self.run(ready.handle, pointers, 13, stream)
        else:
            status = self.run(ready.handle, pack[7](at_q, at_k, at_v, o.data_ptr(), lse.data_ptr(), 0, lent), 7, stream)
        if status:
            raise lib.failed(status)
        return o, lse

    def writes(self, t, like):
        """Whether kernels write the gradient of `like` into t in place."""
        fits = type(t) is torch.Tensor and (t.shape, t.dtype, t.device) == (like.shape, like.dtype, like.device) and not t.is_neg()
        return fits and self.reads(t.shape, t.stride()) and not any(n > 1 and s == 0 for n, s in zip(t.shape, t.stride())) and not self.misplaced(t)

    def backward(self, d_o, dlse, q, k, v, o, lse, sink=None, cu_q=None, cu_k=None, random=None, alibi=None, into=None):
        """dq, dk, dv and dsink. into: dq, dk and dv that are there, or None: writes() has said that they serve."""
        key = self.key_of_backward(d_o, dlse, q, k, v, o, sink, cu_q, cu_k, random, alibi)
        lse, dlse = lse.contiguous(), None if dlse is None else _with_memory(dlse.contiguous())
        if into is not None:
            key = (*key, *[None if t is None else t.stride() for t in into])
            dq, dk, dv = (torch.empty_strided(*of, dtype=t.dtype, device=t.device) if made is None else made
                          for made, of, t in zip(into, (self.of_q, self.of_k, self.of_v), (q, k, v)))  # fmt: skip
        else:
            dq, dk, dv = self.new_gradients(key, q, k, v, o)
        dsink = None if sink is None else torch.empty_like(sink, memory_format=torch.contiguous_format)
        ready = self.ready[1].get(key) or self.ready_backward(key, d_o, dlse, q, k, v, o, lse, dq, dk, dv, sink, cu_q, cu_k, dsink, random, alibi)
        if ready.copies:
            given = [q, k, v, o, d_o]
            for at in ready.copies:
                given[at] = given[at].clone(memory_format=torch.contiguous_format)
            q, k, v, o, d_o = given
        at = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), d_o.data_ptr()
        if 0 in at:
            q, k, v, o, lse, d_o = map(_with_memory, (q, k, v, o, lse, d_o))
            at = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), d_o.data_ptr()
        if self.cuda:
            if (at[0] | at[1] | at[2] | at[3] | at[5]) & 15 and self.misplaced(q, k, v, o, d_o):
                q, k, v, o, d_o = self.placed(q, k, v, o, d_o)
                return self.backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, into)
            stream = _stream_of(self.index)
        else:
            stream = None
        room = self.room[1]
        held = None if room is None else torch.empty_like(room) if self.cuda else self.lend(1)
        lent = 0 if held is None else held.data_ptr() + 255 & -256
        outputs = 0 if dlse is None else dlse.data_ptr(), dq.data_ptr(), dk.data_ptr(), dv.data_ptr(), 0, lent
        if self.more:
            kept = [t if t is None else t.contiguous() for t in (sink, cu_q, cu_k, dsink, random, alibi)]
            status = self.run(ready.handle, pack[18](*at, *outputs, *[0 if t is None else t.data_ptr() for t in kept]), 18, stream)
        else:
            status = self.run(ready.handle, pack[12](*at, *outputs), 12, stream)
        if status:
            raise lib.failed(status)
        return dq, dk, dv, dsink

    def new_gradients(self, key, q, k, v, o):
        # empty_like, of a tensor that has these shape and strides, is cheaper than a call that reads them as lists of numbers
        if key[1] == self.of_q[1] or (self.o_is_as_dq and key[4] == self.of_q[1]):
            dq = torch.empty_like(q if key[1] == self.of_q[1] else o)
        else:
            dq = q.new_empty_strided(*self.of_q)
        dk = torch.empty_like(dq) if self.dk_is_as_dq else torch.empty_like(k) if key[2] == self.of_k[1] else k.new_empty_strided(*self.of_k)
        dv = torch.empty_like(dk) if self.dv_is_as_dk else torch.empty_like(v) if key[3] == self.of_v[1] else v.new_empty_strided(*self.of_v)
        return dq, dk, dv

    def ready_backward(self, key, d_o, dlse, q, k, v, o, lse, dq, dk, dv, sink=None, cu_q=None, cu_k=None, dsink=None, random=None, alibi=None):
        tensors = [("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o), *_small(lse=lse, dlse=dlse)]
        tensors += [("dq", dq), ("dk", dk), ("dv", dv), *_small(sink=sink, cu_q=cu_q, cu_k=cu_k), ("dsink", dsink), _numbers(random)]
        tensors += _small(alibi=alibi)
        return self.make_ready(1, key, tensors, 5)

    def lend(self, which):
        """Workspace of a pass, or None. A CPU's small ones are kept by the thread: there a call is over when it returns."""
        room = self.room[which]
        if room is None or self.cuda:
            return room if room is None else torch.empty_like(room)
        size = room.shape[0]
        if size > _SMALL:
            return torch.empty_like(room)
        held = getattr(_of_thread, "held", None)
        if held is None or held[1] < size:
            held = _of_thread.held = torch.empty(size, dtype=torch.uint8, device=self.device), size
        return held[0]

    def misplaced(self, *tensors):
        return any(t.shape[3] * self.size % 16 == 0 and t.data_ptr() % 16 for t in tensors)

    def placed(self, *tensors):
        return [t.clone(memory_format=torch.contiguous_format) if self.misplaced(t) else t for t in tensors]


def _with_memory(t):
    """t, where autograd has a zero that has no memory (torch's ZeroTensor)."""
    return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device=t.device).zero_() if t._is_zerotensor() else t


def _kinds(tensors):
    """Shape and type of each small tensor that there is: the operators are called with tensors that nothing else has checked."""
    return [t if t is None else (t.shape, t.dtype) for t in tensors] if any(t is not None for t in tensors) else ()


def _small(**tensors):
    """Tensors that are in order when they are handed over."""
    return [(name, t if t is None else (tuple(t.shape), _in_order(t.shape), t.dtype)) for name, t in tensors.items()]


def _numbers(random):
    """Dropout's seed and offset, as the C interface takes them: the 64 bits of each in two halves."""
    if random is not None and (tuple(random.shape) != (2,) or random.dtype != torch.int64):
        raise ValueError(f"gpu_headroom.torch: random is {random.dtype} {tuple(random.shape)}, it must be torch.int64 (2,)")
    return "random", None if random is None else ((4,), (1,), torch.int32)


@functools.lru_cache(maxsize=4096)
def _call(context, device, shapes, dtype, options, heads_first, tf32, with_, order):
    return _Call(context, device, shapes, dtype, options, heads_first, tf32, with_, order)


class Options(NamedTuple):
    """The options of the operators, in their order; `torch.compile` and dispatch carry them as a plain tuple."""

    mask: int
    top_left: bool
    window: int
    after: int
    softcap: float
    scale: Optional[float]
    heads_first: bool
    variant: str
    deterministic: bool
    tf32: int
    order: int = 0
    dropout: float = 0.0
    fp8: bool = False


def call_of(q, k, v, sink, cu_q, cu_k, pages, random, alibi, *options):
    o = Options(*options)
    rows, positions = (1, 2) if o.heads_first else (2, 1)
    a, b = q.shape, k.shape
    shapes = (a[0], a[rows], a[positions], a[3]), (b[0], b[rows], b[positions], v.shape[3])
    kept = (o.mask, o.top_left, o.window, o.after, o.softcap, o.scale, o.variant, o.deterministic, o.dropout, o.fp8)
    with_ = sink is not None, 0 if cu_q is None else cu_q.shape[1] - 1, 0 if pages is None else pages.shape[1], alibi is not None
    return _call(context_of(q), q.device, shapes, q.dtype, kept, o.heads_first, tf32_of(o.tf32, q), with_, o.order)


def _shape_and_stride(shape, heads_first, order=0):
    """An output's, in one of ORDERS; without heads_first it is in order."""
    if not heads_first:
        return shape, _in_order([max(n, 1) for n in shape])
    strides, step = [0, 0, 0], shape[3]
    for at in reversed(ORDERS[order]):
        strides[at] = step
        step = step * (1 if type(shape[at]) is int and shape[at] == 0 else shape[at])  # a symbol of compiled code is not asked
    return shape, (*strides, 1)


def like(t, heads_first, dim=None, order=0):
    """An output of t's shape (or another head_dim), in one of ORDERS; without heads_first it is in order."""
    shape = (*t.shape[:3], t.shape[3] if dim is None else dim)
    return t.new_empty_strided(*_shape_and_stride(shape, heads_first, order)) if heads_first else t.new_empty(shape)
