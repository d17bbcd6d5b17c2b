"""Exact attention as an operator of PyTorch: CPU and CUDA, autograd, torch.compile, CUDA graphs, any strides.

    import headroom.torch as ht
    o = ht.attention(q, k, v, is_causal=True)                      # [batch, heads, len, head_dim], as torch has it
    o, lse = ht.attention(q, k, v, layout="blhd", return_lse=True) # [batch, len, heads, head_dim]; both are differentiable
    o = ht.attention_varlen(q, k, v, cu_seqlens, is_causal=True)   # documents packed one behind another: [tokens, heads, head_dim]
    o = ht.attention_with_cache(q, k_cache, v_cache, lengths)      # new positions over a cache, which may lie in pages

    with ht.replace_sdpa() as replaced:                            # an unchanged model goes through it
        model(tokens)
    print(replaced.explain())                                      # which calls were left to torch, and why

The operators are torch.ops.headroom.attention_forward and attention_backward. torch >= 2.4.
"""

import collections
import contextlib
import ctypes as c
import difflib
import functools
import inspect
import math
import numbers
import re
import struct
import threading
import weakref
from typing import Any, Iterator, NoReturn, Optional, Tuple, Union

import torch
import torch.autograd.forward_ad as _forward_ad

from . import attention as _arrays_attention
from . import library as lib

if tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) < (2, 4):
    raise ImportError(f"headroom.torch needs torch 2.4 or newer, this is {torch.__version__}")

__all__ = [
    "Replacement", "attention", "attention_backward", "attention_varlen", "attention_with_cache", "explain", "replace_sdpa", "why_not",
]  # fmt: skip

_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_KINDS = ("cpu", "cuda")
_LAYOUTS = ("bhld", "blhd")
Window = Union[None, int, Tuple[int, int]]
WithLse = Tuple[torch.Tensor, torch.Tensor]

# ---- the operators: attention over views, whose layout, mask and variant are said in plain values ----

_library = torch.library.Library("headroom", "DEF")
_WITH = "Tensor? sink, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_OPTIONS = (
    "int mask, bool top_left, int window, int after, float softcap, float? scale, bool heads_first, str variant, bool deterministic, int tf32"
)
_library.define(f"attention_forward(Tensor q, Tensor k, Tensor v, {_WITH}, Tensor? pages, {_OPTIONS}) -> (Tensor, Tensor)")
_library.define(
    f"attention_backward(Tensor d_o, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_WITH}, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)


@functools.lru_cache(maxsize=None)
def _context(device, threads):
    return lib.Context(threads=threads, device=device)


def _context_of(t):
    if t.is_cuda:
        return _context(f"cuda:{t.device.index or 0}", 0)
    return _context("cpu", torch.get_num_threads())


def _tf32(asked, t):
    if asked >= 0:
        return bool(asked)
    if not t.is_cuda or t.dtype != torch.float32:
        return False
    matmul = torch.backends.cuda.matmul
    said = getattr(matmul, "fp32_precision", None)  # since torch 2.9; the older word is refused where both were used
    return said == "tf32" if said is not None else matmul.allow_tf32


_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.int32: 3}
_STRUCTS = lib.ForwardArguments, lib.BackwardArguments
_CREATORS = "headroom_attention_forward_call_create", "headroom_attention_backward_call_create"
_pack = {n: struct.Struct(f"={n}Q").pack for n in (7, 11, 12, 16)}  # pointers of a call: forward and backward, without and with more
_raw_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


def _stream_of(device):
    return _raw_stream(device.index) if _raw_stream is not None else torch.cuda.current_stream(device).cuda_stream


def _in_order(shape):
    return tuple(math.prod(shape[i + 1 :]) for i in range(len(shape)))


_SMALL = 1 << 20  # bytes
_of_thread = threading.local()


class _Ready:
    """A call of the C interface whose shapes and strides are settled; `copies`: which of the tensors are copied into order before."""

    __slots__ = ("__weakref__", "copies", "handle")

    def __init__(self, handle, copies):
        self.handle, self.copies = handle.value, copies
        weakref.finalize(self, lib.library().headroom_attention_call_destroy, handle).atexit = False


class _Call:
    """What one problem needs each time, worked out once: the bytes of workspace, the shapes of outputs, calls by their tensors' strides."""

    def __init__(self, context, device, shapes, torch_dtype, options, heads_first, tf32, with_):
        (batch, heads, len_q, dim), (k_batch, kv_heads, len_k, dim_v) = shapes
        mask, top_left, window, after, softcap, scale, variant, deterministic = options
        has_sink, documents, pages_of_sequence = with_
        self.context, self.device, self.heads_first, self.dtype = context, device, heads_first, torch_dtype
        self.cuda, self.size = device.type == "cuda", torch_dtype.itemsize
        self.problem = _arrays_attention.make_problem(
            (batch, len_q, heads, dim), (k_batch, len_k, kv_heads, dim), _NAMES[torch_dtype], "full", scale, variant or "flash",
            deterministic, tf32, dim_v, softcap, has_sink, documents, pages_of_sequence,
        )  # fmt: skip
        self.problem.mask, self.problem.align, self.problem.window, self.problem.window_after = mask, int(top_left), window, after
        saved = _arrays_attention.bytes_of("headroom_attention_saved_bytes", context, self.problem)
        if saved:
            raise ValueError(f"variant '{variant}' keeps {saved} bytes beside q, k, v, o and lse: headroom.torch serves flash variants")
        self.workspace = [
            _arrays_attention.bytes_of("headroom_attention_workspace_bytes", context, self.problem, i)
            for i in ((0,) if pages_of_sequence else (0, 1))
        ]
        self.more = has_sink or documents > 0 or pages_of_sequence > 0
        o = _like(torch.empty((batch, heads, len_q, dim) if heads_first else (batch, len_q, heads, dim), device="meta"), heads_first, dim_v)
        self.o_shape, self.o_stride, self.lse_shape = tuple(o.shape), o.stride(), (batch, heads, len_q)
        self.one = torch.empty(1, dtype=torch.float32, device=device).expand(self.lse_shape)  # of which LSE is the like: the cheapest way to make one
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

    def make_ready_forward(self, key, q, k, v, sink, cu_q, cu_k, pages):
        o, lse = (self.o_shape, self.o_stride, self.dtype), (self.lse_shape, _in_order(self.lse_shape), torch.float32)
        return self.make_ready(
            0, key, [("q", q), ("k", k), ("v", v), ("o", o), ("lse", lse), *_small(sink, cu_q, cu_k), ("pages", pages)], 3
        )

    def forward(self, q, k, v, sink=None, cu_q=None, cu_k=None, pages=None):
        key = q.stride(), k.stride(), v.stride()
        ready = self.ready[0].get(key) or self.make_ready_forward(key, q, k, v, sink, cu_q, cu_k, pages)
        return self.run_forward(ready, q, k, v, sink, cu_q, cu_k, pages)

    def run_forward(self, ready, q, k, v, sink=None, cu_q=None, cu_k=None, pages=None):
        if ready.copies:
            given = [q, k, v]
            for at in ready.copies:
                given[at] = given[at].clone(memory_format=torch.contiguous_format)
            q, k, v = given
        at_q, at_k, at_v = q.data_ptr(), k.data_ptr(), v.data_ptr()
        if self.cuda:
            if (at_q | at_k | at_v) & 15 and self.misplaced(q, k, v):
                return self.forward(*self.placed(q, k, v), sink, cu_q, cu_k, pages)
            stream = _stream_of(self.device)
        else:
            stream = None
        o = q.new_empty_strided(self.o_shape, self.o_stride)
        lse = torch.empty_like(self.one)
        held = self.lend(0)  # alive until the call returns; on CUDA torch's allocator keeps it for what the stream was given
        lent = 0 if held is None else held.data_ptr() + 255 & -256
        if self.more:
            kept = [t if t is None else t.contiguous() for t in (sink, cu_q, cu_k, pages)]
            pointers = _pack[11](at_q, at_k, at_v, o.data_ptr(), lse.data_ptr(), 0, lent, *[0 if t is None else t.data_ptr() for t in kept])
            status = self.run(ready.handle, pointers, 11, stream)
        else:
            status = self.run(ready.handle, _pack[7](at_q, at_k, at_v, o.data_ptr(), lse.data_ptr(), 0, lent), 7, stream)
        if status:
            raise lib.failed(status)
        return o, lse

    def backward(self, d_o, dlse, q, k, v, o, lse, sink=None, cu_q=None, cu_k=None):
        key = d_o.stride(), q.stride(), k.stride(), v.stride(), o.stride(), dlse is None
        lse, dlse = lse.contiguous(), None if dlse is None else dlse.contiguous()
        made = _like(q, self.heads_first), _like(k, self.heads_first), _like(v, self.heads_first)
        dsink = None if sink is None else torch.empty_like(sink, memory_format=torch.contiguous_format)
        ready = self.ready[1].get(key)
        if ready is None:
            tensors = [("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o), ("lse", lse), ("dlse", dlse)]
            tensors += [("dq", made[0]), ("dk", made[1]), ("dv", made[2]), *_small(sink, cu_q, cu_k)]
            ready = self.make_ready(1, key, [*tensors, ("dsink", dsink)], 5)
        if ready.copies:
            given = [q, k, v, o, d_o]
            for at in ready.copies:
                given[at] = given[at].clone(memory_format=torch.contiguous_format)
            q, k, v, o, d_o = given
        at = q.data_ptr(), k.data_ptr(), v.data_ptr(), o.data_ptr(), lse.data_ptr(), d_o.data_ptr()
        if self.cuda:
            if (at[0] | at[1] | at[2] | at[3] | at[5]) & 15 and self.misplaced(q, k, v, o, d_o):
                q, k, v, o, d_o = self.placed(q, k, v, o, d_o)
                return self.backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k)
            stream = _stream_of(self.device)
        else:
            stream = None
        held = self.lend(1)
        lent = 0 if held is None else held.data_ptr() + 255 & -256
        outputs = 0 if dlse is None else dlse.data_ptr(), made[0].data_ptr(), made[1].data_ptr(), made[2].data_ptr(), 0, lent
        if self.more:
            kept = [*[t if t is None else t.contiguous() for t in (sink, cu_q, cu_k)], dsink]
            status = self.run(ready.handle, _pack[16](*at, *outputs, *[0 if t is None else t.data_ptr() for t in kept]), 16, stream)
        else:
            status = self.run(ready.handle, _pack[12](*at, *outputs), 12, stream)
        if status:
            raise lib.failed(status)
        return (*made, dsink)

    def lend(self, which):
        """Workspace of a pass, or None. A CPU's small ones are kept by the thread: there a call is over when it returns."""
        size = self.workspace[which]
        if size == 0 or self.cuda:
            return torch.empty(size, dtype=torch.uint8, device=self.device) if size else None
        size += lib.ALIGNMENT
        if size > _SMALL:
            return torch.empty(size, dtype=torch.uint8, device=self.device)
        held = getattr(_of_thread, "held", None)
        if held is None or held[1] < size:
            held = _of_thread.held = torch.empty(size, dtype=torch.uint8, device=self.device), size
        return held[0]

    def misplaced(self, *tensors):
        return any(t.shape[3] * self.size % 16 == 0 and t.data_ptr() % 16 for t in tensors)

    def placed(self, *tensors):
        return [t.clone(memory_format=torch.contiguous_format) if self.misplaced(t) else t for t in tensors]


def _small(sink, cu_q, cu_k):
    """Tensors that are in order when they are handed over."""
    return [
        (name, t if t is None else (tuple(t.shape), _in_order(t.shape), t.dtype))
        for name, t in (("sink", sink), ("cu_q", cu_q), ("cu_k", cu_k))
    ]


@functools.lru_cache(maxsize=4096)
def _call(context, device, shapes, dtype, options, heads_first, tf32, with_):
    return _Call(context, device, shapes, dtype, options, heads_first, tf32, with_)


def _call_of(q, k, v, sink, cu_q, cu_k, pages, mask, top_left, window, after, softcap, scale, heads_first, variant, deterministic, tf32):
    rows, positions = (1, 2) if heads_first else (2, 1)
    a, b = q.shape, k.shape
    shapes = (a[0], a[rows], a[positions], a[3]), (b[0], b[rows], b[positions], v.shape[3])
    options = (mask, top_left, window, after, softcap, scale, variant, deterministic)
    with_ = sink is not None, 0 if cu_q is None else cu_q.shape[1] - 1, 0 if pages is None else pages.shape[1]
    return _call(_context_of(q), q.device, shapes, q.dtype, options, heads_first, _tf32(tf32, q), with_)


def _like(t, heads_first, dim=None):
    """An output of t's shape (or another head_dim). Positions outermost in memory: what a projection reads without a copy."""
    a, b, length, own = t.shape
    dim = own if dim is None else dim
    if not heads_first:
        return t.new_empty((a, b, length, dim))
    return t.new_empty_strided((a, b, length, dim), (b * length * dim, dim, b * dim, 1))


def _lse_like(q, heads_first):
    batch, a, b, _ = q.shape
    return q.new_empty((batch, a, b) if heads_first else (batch, b, a), dtype=torch.float32)


def _forward(q, k, v, sink, cu_q, cu_k, pages, *options):
    return _call_of(q, k, v, sink, cu_q, cu_k, pages, *options).forward(q, k, v, sink, cu_q, cu_k, pages)


def _backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, *options):
    *made, dsink = _call_of(q, k, v, sink, cu_q, cu_k, None, *options).backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k)
    return (*made, q.new_empty((0,), dtype=torch.float32) if dsink is None else dsink)


for _key in ("CPU", "CUDA"):
    _library.impl("attention_forward", _forward, _key)
    _library.impl("attention_backward", _backward, _key)

_HEADS_FIRST = 6  # of the options


@torch.library.register_fake("headroom::attention_forward", lib=_library)
def _(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, pages, *options):
    heads_first = options[_HEADS_FIRST]
    return _like(q, heads_first, v.shape[3]), _lse_like(q, heads_first)


@torch.library.register_fake("headroom::attention_backward", lib=_library)
def _(d_o, dlse, q, k, v, o, lse, sink, cu_seqlens_q, cu_seqlens_k, *options):
    dsink = q.new_empty((0 if sink is None else sink.shape[0],), dtype=torch.float32)
    return (*[_like(t, options[_HEADS_FIRST]) for t in (q, k, v)], dsink)


_NO_PAGES = "headroom.torch: a cache in pages has no gradients: call it under torch.no_grad(), or with k and v as they are"


def _remember(ctx, inputs, output):
    q, k, v, sink, cu_q, cu_k, pages, *ctx.options = inputs
    o, lse = output
    ctx.save_for_backward(q, k, v, o, lse, sink, cu_q, cu_k)
    ctx.paged = pages is not None
    ctx.set_materialize_grads(False)


def _gradients(ctx, d_o, dlse):
    nothing = (None,) * (3 + len(ctx.options))
    if d_o is None and dlse is None:
        return (None, None, None, None, *nothing)
    if ctx.paged:
        raise RuntimeError(_NO_PAGES)
    q, k, v, o, lse, sink, cu_q, cu_k = ctx.saved_tensors
    if d_o is None:
        d_o = torch.zeros_like(o)
    dq, dk, dv, dsink = torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, *ctx.options)
    return (dq, dk, dv, None if sink is None else dsink, *nothing)


def _no_second(ctx, *gradients):
    raise RuntimeError("headroom.torch has no second derivatives of attention: use torch's math backend for this model")


torch.library.register_autograd("headroom::attention_forward", _gradients, setup_context=_remember, lib=_library)
torch.library.register_autograd("headroom::attention_backward", _no_second, setup_context=lambda ctx, inputs, output: None, lib=_library)


# ---- for torch.func and forward derivatives, which an operator's own autograd does not know ----


class _Transformed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, sink, cu_q, cu_k, pages, *options):
        return torch.ops.headroom.attention_forward(q, k, v, sink, cu_q, cu_k, pages, *options)

    setup_context = staticmethod(_remember)

    @staticmethod
    def backward(ctx, d_o, dlse):
        nothing = (None,) * (3 + len(ctx.options))
        if d_o is None and dlse is None:
            return (None, None, None, None, *nothing)
        if ctx.paged:
            raise RuntimeError(_NO_PAGES)
        q, k, v, o, lse, sink, cu_q, cu_k = ctx.saved_tensors
        d_o = torch.zeros_like(o) if d_o is None else d_o
        dq, dk, dv, dsink = _TransformedBackward.apply(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, *ctx.options)
        return (dq, dk, dv, None if sink is None else dsink, *nothing)


class _TransformedBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, *options):
        return torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, *options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(_no_second)


# ---- without the dispatcher: what eager code runs, in a third of the time ----


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sink, cu_q, cu_k, pages, call, ready, options):
        o, lse = call.run_forward(ready, q, k, v, sink, cu_q, cu_k, pages)
        ctx.save_for_backward(q, k, v, o, lse, sink, cu_q, cu_k)
        ctx.call, ctx.options, ctx.paged = call, options, pages is not None
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx, d_o, dlse):
        if d_o is None and dlse is None:
            return (None,) * 10
        if ctx.paged:
            raise RuntimeError(_NO_PAGES)
        q, k, v, o, lse, sink, cu_q, cu_k = ctx.saved_tensors
        if d_o is None:
            d_o = torch.zeros_like(o)
        if torch.is_grad_enabled():  # second derivatives are wanted: the operator says that there are none
            *made, dsink = torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, *ctx.options)
            return (*made, None if sink is None else dsink, None, None, None, None, None, None)
        return (*ctx.call.backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k), None, None, None, None, None, None)


try:  # whoever listens to operators must hear of ours: modes, functorch, tracing
    _modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    _transforms = torch._C._functorch.peek_interpreter_stack
    _tracing = torch._C._get_tracing_state
    _any_autocast = torch._C._is_any_autocast_enabled
    _direct_is_possible = _modes[0]() == 0 and _transforms() is None and _tracing() is None and _any_autocast() in (False, True)
    _direct_is_possible = _direct_is_possible and _forward_ad._current_level < 0
except AttributeError:
    _direct_is_possible = False
    _transforms = None
_plain = frozenset((torch.Tensor, torch.nn.Parameter))
_plain_or_none = _plain | {type(None)}
_known = {}  # (call, ready, options) of what was asked before, checked then


def _directly(q, k, v):
    return (
        _direct_is_possible
        and not torch.compiler.is_compiling()  # first: compiled code knows no more of what follows
        and type(q) in _plain
        and type(k) in _plain
        and type(v) in _plain
        and not (q.is_nested or k.is_nested or v.is_nested)
        and _modes[0]() == 0
        and _modes[1]() == 0
        and _transforms() is None
        and _tracing() is None
        and _forward_ad._current_level < 0
    )


def _run(tensors, options):
    """o and lse of checked arguments."""
    q, k, v, *_ = tensors
    if q.device.type in _KINDS and _directly(q, k, v):
        return _run_directly(tensors, *_settled(tensors, options))
    if not torch.compiler.is_compiling() and _transforms is not None and (_transforms() is not None or _forward_ad._current_level >= 0):
        return _Transformed.apply(*tensors, *options)
    return torch.ops.headroom.attention_forward(*tensors, *options)


def _settled(tensors, options):
    call = _call_of(*tensors, *options)
    q, k, v, *_ = tensors
    key = q.stride(), k.stride(), v.stride()
    return call, call.ready[0].get(key) or call.make_ready_forward(key, *tensors), options


def _run_directly(tensors, call, ready, options):
    q, k, v, sink, *_ = tensors
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)):
        return _Attention.apply(*tensors, call, ready, options)
    return call.run_forward(ready, *tensors)


# ---- the call ----


def why_not(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
    enable_gqa: bool = True, *, layout: str = "bhld",
    **misspelt: NoReturn,
) -> Optional[str]:  # fmt: skip
    """None when headroom serves this call of scaled_dot_product_attention, else the reason why not, in one sentence."""
    if misspelt:
        _refuse(why_not, misspelt)
    return _why_not(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout)


def _why_not(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, paged=False):
    if layout not in _LAYOUTS:
        return f"layout '{layout}': bhld ([batch, heads, len, head_dim], torch's) or blhd ([batch, len, heads, head_dim])"
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, torch.Tensor):
            return f"{name} is a {type(t).__name__}, not a tensor"
        if t.device.type not in _KINDS:
            return f"{name} is on {t.device}: served are cpu and cuda"
        if t.dtype not in _NAMES:
            return f"{name} is {t.dtype}: served are torch.float32, torch.bfloat16 and torch.float16"
        if t.dim() != 4:
            return f"{name} has {t.dim()} dimensions: 4 are served, [batch, heads, len, head_dim] or layout='blhd'"
        if t.is_nested or t.layout != torch.strided:
            return f"{name} is nested or sparse: only strided tensors are served"
        if t.device != q.device:
            return f"{name} is on {t.device}, q is on {q.device}"
        if t.dtype != q.dtype:
            return f"{name} is {t.dtype}, q is {q.dtype}: all have one dtype"
    if attn_mask is not None:
        return "a mask given as a tensor (attn_mask) is not served: say is_causal or window, or leave it out"
    if dropout_p != 0:
        return f"dropout_p is {dropout_p}: dropout inside attention is not served"
    if scale is not None and not isinstance(scale, (numbers.Real, torch.SymFloat)):
        return f"scale is a {type(scale).__name__}: a number, or None for 1/sqrt(head_dim)"
    rows = 1 if layout == "bhld" else 2
    if k.shape[:3] != v.shape[:3]:
        return f"k is {tuple(k.shape)} and v is {tuple(v.shape)}: all but head_dim must agree"
    if (q.shape[0] != k.shape[0] and not paged) or q.shape[3] != k.shape[3]:
        return f"q is {tuple(q.shape)} and k is {tuple(k.shape)}: {'' if paged else 'batch and '}head_dim must agree"
    heads, kv_heads = q.shape[rows], k.shape[rows]
    if kv_heads == 0 or heads % kv_heads != 0:
        return f"{heads} query heads cannot share {kv_heads} key heads: the first must be a multiple of the second"
    if heads != kv_heads and not enable_gqa:
        return f"{heads} query heads and {kv_heads} key heads need enable_gqa=True"
    for t in (q, v):
        if t.shape[3] < 1 or t.shape[3] > 256:
            return f"head_dim is {t.shape[3]}: 1 to 256 are served"
    return None


def _cast(tensors):
    """What autocast makes of the inputs of scaled_dot_product_attention."""
    kind = tensors[0].device.type
    if kind not in _KINDS or not torch.is_autocast_enabled(kind):
        return tensors
    to = torch.get_autocast_dtype(kind)
    return [t.to(to) if t.is_floating_point() and t.dtype != torch.float64 else t for t in tensors]


def _options(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap=0.0):
    if align not in ("top-left", "bottom-right"):
        raise ValueError(f"align '{align}': top-left (torch's: row i sees keys up to i) or bottom-right (the last row sees the last key)")
    if not isinstance(is_causal, bool):
        raise TypeError(f"is_causal is a {type(is_causal).__name__}: True or False")
    if window is not None:
        if is_causal:
            raise ValueError("is_causal and window are both given: a window is causal already, leave is_causal out")
        both = window if isinstance(window, tuple) and len(window) == 2 else (window, 0)
        if any(isinstance(n, bool) or not isinstance(n, (int, torch.SymInt)) for n in both):
            raise TypeError(
                f"window is {window!r}: the number of keys that a row sees, its own and those before; or (that, the number of keys after)"
            )
        if both[0] < 1 or both[1] < 0:
            raise ValueError(f"window is {window}: a row sees at least its own key, so at least 1, and at least 0 after")
    if variant is not None and not isinstance(variant, str):
        raise TypeError(f"variant is a {type(variant).__name__}: a name as explain() lists them, or None for the best")
    for name, value in (("deterministic", deterministic), ("tf32", tf32)):
        if not isinstance(value, bool) and not (name == "tf32" and value is None):
            raise TypeError(f"{name} is a {type(value).__name__}: True or False{', or None for what torch says' if name == 'tf32' else ''}")
    if scale is not None and not -math.inf < scale < math.inf:  # in words that compiled code has for symbols too
        raise ValueError(f"scale is {scale}: it must be finite")
    if isinstance(softcap, bool) or not isinstance(softcap, (int, float, torch.SymFloat)) or not 0 <= softcap < math.inf:
        raise ValueError(f"softcap is {softcap!r}: a number above 0, or 0 for none")
    mask = 2 if window is not None else 1 if is_causal else 0
    width, after = (0, 0) if window is None else both
    scale = None if scale is None else float(scale)
    return (mask, align == "top-left" and mask != 0, width, after, float(softcap), scale, layout == "bhld", variant or "", bool(deterministic),
            -1 if tf32 is None else int(bool(tf32)))  # fmt: skip


def _listed(name, t, q, shape):
    """An int32 tensor of this shape beside q; a batch of 1 may leave its dimension out."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"headroom.torch: {name} is a {type(t).__name__}, not a tensor")
    if t.dtype != torch.int32:
        raise TypeError(f"headroom.torch: {name} is {t.dtype}, it must be torch.int32: pass {name}.int()")
    if t.device != q.device:
        raise ValueError(f"headroom.torch: {name} is on {t.device}, q is on {q.device}")
    if t.dim() == 1 and shape[0] == 1:
        t = t[None]
    if t.dim() != 2 or t.shape[0] != shape[0] or t.shape[1] < shape[1]:
        raise ValueError(f"headroom.torch: {name} is {tuple(t.shape)}, it must be ({shape[0]}, at least {shape[1]})")
    return t


def _with(q, heads, sink, cu_q, cu_k):
    """sink, cu_seqlens_q and cu_seqlens_k, checked, as the operator takes them."""
    if sink is not None:
        if not isinstance(sink, torch.Tensor) or not sink.is_floating_point():
            said = sink.dtype if isinstance(sink, torch.Tensor) else f"a {type(sink).__name__}"
            raise TypeError(f"headroom.torch: sink is {said}, it must be a tensor of {heads} floating-point numbers, one for each head")
        if sink.device != q.device:
            raise ValueError(f"headroom.torch: sink is on {sink.device}, q is on {q.device}")
        if sink.dim() != 1 or sink.shape[0] != heads:
            raise ValueError(f"headroom.torch: sink is {tuple(sink.shape)}, it must be ({heads},): one number for each head")
        sink = sink.float()
    if cu_q is None:
        if cu_k is not None:
            raise ValueError("headroom.torch: cu_seqlens_k is given without cu_seqlens_q")
        return sink, None, None
    cu_q = _listed("cu_seqlens_q", cu_q, q, (q.shape[0], 2))
    cu_k = cu_q if cu_k is None else _listed("cu_seqlens_k", cu_k, q, (q.shape[0], 2))
    if cu_q.shape != cu_k.shape:
        raise ValueError(f"headroom.torch: cu_seqlens_q is {tuple(cu_q.shape)} and cu_seqlens_k is {tuple(cu_k.shape)}: they must agree")
    return sink, cu_q, cu_k


def _checked(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, sink, cu_q, cu_k, paged=False, of="attention"):
    """The operator's tensors but for pages, or an error in one sentence. `of` is the function that was called."""
    reason = _why_not(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, paged)
    if reason is not None:
        wrong_type = " is a " in reason or " is torch." in reason or ", q is torch." in reason
        if of == "attention_with_cache":
            reason = re.sub(r"\b([kv])\b", r"\1_cache", reason)
        raise (TypeError if wrong_type else ValueError)(f"headroom.torch.{of}: {reason}")
    return (q, k, v, *_with(q, q.shape[1 if layout == "bhld" else 2], sink, cu_q, cu_k))


_ELSEWHERE = {  # what other libraries call an argument
    "causal": "is_causal", "softmax_scale": "scale", "sm_scale": "scale", "window_size": "window", "cu_seqlens": "cu_seqlens_q",
    "cache_seqlens": "lengths", "block_table": "pages", "block_tables": "pages", "logits_soft_cap": "softcap", "s_aux": "sink", "sinks": "sink",
    "return_softmax_lse": "return_lse", "dropout": "dropout_p", "attention_mask": "attn_mask",
}  # fmt: skip


def _refuse(function, misspelt):
    """The error for keyword arguments that a function does not have."""
    name = next(iter(misspelt))
    known = [n for n, p in inspect.signature(function).parameters.items() if p.kind is not p.VAR_KEYWORD]
    meant = [_ELSEWHERE[name]] if _ELSEWHERE.get(name) in known else difflib.get_close_matches(name, known, 1)
    said = f"say {meant[0]}" if meant else f"there are {', '.join(known)}"
    raise TypeError(f"headroom.torch.{function.__name__} has no argument '{name}': {said}")


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = True,
    *,
    window: Window = None,
    align: str = "top-left",
    layout: str = "bhld",
    return_lse: bool = False,
    variant: Optional[str] = None,
    deterministic: bool = False,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    mask: None = None,
    **misspelt: NoReturn,
) -> Union[torch.Tensor, WithLse]:
    """softmax(scale * q k^T + mask) v, exactly; the arguments of torch's scaled_dot_product_attention, and more.

    q: [batch, heads, len_q, head_dim]; k and v: [batch, kv_heads, len_k, head_dim], where kv_heads divides heads; with
    layout="blhd" [batch, len, heads, head_dim]. float32, bfloat16 or float16, CPU or CUDA, any strides. head_dim up to 256.
    v may have a head_dim of its own, which is then o's. The result has q's dtype.
    window: a row sees its own position and the window - 1 before it; (window, n): and the n after it. softcap: scores become
    softcap * tanh(score / softcap), as in Gemma 2. align: where the diagonal of is_causal and window begins
    when len_q and len_k differ: "top-left" as torch's is_causal, "bottom-right" as flash-attn's. scale: None is 1/sqrt(head_dim).
    sink: [heads], a logit that joins each head's softmax and has no value, as in gpt-oss; differentiable.
    cu_seqlens_q: int32 [batch, documents + 1]: sequences packed one behind another into each row of the batch. Document d has the
    positions cu_seqlens_q[b, d] up to cu_seqlens_q[b, d + 1]; the mask holds inside it, and nobody sees another's. cu_seqlens_k: the
    same of the keys; None: that of the queries. On the CPU wrong lists are refused; on CUDA nobody looks, and the result is undefined.
    return_lse: also the logarithm of the softmax's sum, float32 [batch, heads, len_q], differentiable too.
    tf32: of float32 on CUDA; None: as torch.backends.cuda.matmul.allow_tf32 says. attn_mask, mask and dropout_p are refused.
    deterministic: the same bits of every gradient in every run; also where torch.use_deterministic_algorithms(True) was said.
    """
    if misspelt:
        _refuse(attention, misspelt)
    if mask is not None:
        raise TypeError("headroom.torch.attention: there is no mask here: say is_causal=True or window=..., or leave it out")
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    key = None
    if attn_mask is None and not dropout_p and _directly(q, k, v) and type(sink) in _plain_or_none and cu_seqlens_q is None:
        dtype = q.dtype
        if q.is_cpu and k.is_cpu and v.is_cpu:
            device = torch.get_num_threads()
        elif q.is_cuda and k.is_cuda and v.is_cuda:
            device = q.device, k.device, v.device, _tf32(-1, q) if tf32 is None and dtype == torch.float32 else None
        else:
            device = None
        if device is not None and not _any_autocast():
            key = (
                q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), dtype, k.dtype, v.dtype, device,
                is_causal, scale, window, align, layout, softcap, tf32, variant, deterministic, enable_gqa, cu_seqlens_k,
                type(is_causal), type(window), type(deterministic), type(tf32),  # 1 and True are one key, and not one answer
                None if sink is None else (sink.shape, sink.dtype, sink.device),
            )  # fmt: skip
            try:
                found = _known.get(key)
            except TypeError:  # something in it is a list, say: looked at below
                key = found = None
            if found is not None:
                out = _run_directly((q, k, v, None if sink is None else sink.float(), None, None, None), *found)
                return out if return_lse else out[0]
    if key is None and all(isinstance(t, torch.Tensor) for t in (q, k, v)):
        q, k, v = _cast([q, k, v])
    tensors = (*_checked(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, sink, cu_seqlens_q, cu_seqlens_k), None)
    options = _options(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap)
    if key is not None:
        if len(_known) >= 4096:
            _known.clear()
        _known[key] = _settled(tensors, options)
    out = _run(tensors, options)
    return out if return_lse else out[0]


def attention_backward(
    d_o: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    is_causal: bool = False,
    scale: Optional[float] = None,
    *,
    dlse: Optional[torch.Tensor] = None,
    window: Window = None,
    align: str = "top-left",
    layout: str = "bhld",
    variant: Optional[str] = None,
    deterministic: bool = False,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> Tuple[torch.Tensor, ...]:
    """(dq, dk, dv), and dsink where there is a sink: for an autograd.Function of your own. attention() does this by itself.

    o [as q, with v's head_dim] and lse [batch, heads, len_q], float32, as attention(…, return_lse=True) left them; d_o: the gradient of o;
    dlse: that of lse, if it was used. Everything else as it was said to attention().
    """
    if misspelt:
        _refuse(attention_backward, misspelt)
    tensors = _checked(q, k, v, None, 0.0, scale, True, layout, sink, cu_seqlens_q, cu_seqlens_k, of="attention_backward")
    shape = (*q.shape[:3], v.shape[3])
    lse_shape = q.shape[:3] if layout == "bhld" else (q.shape[0], q.shape[2], q.shape[1])
    for name, t, dtype, want in (("d_o", d_o, q.dtype, shape), ("o", o, q.dtype, shape), ("lse", lse, torch.float32, lse_shape),
                                 ("dlse", dlse, torch.float32, lse_shape)):  # fmt: skip
        if name == "dlse" and t is None:
            continue
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"headroom.torch.attention_backward: {name} is a {type(t).__name__}, not a tensor")
        if t.dtype != dtype or t.device != q.device or tuple(t.shape) != tuple(want):
            raise ValueError(
                f"headroom.torch.attention_backward: {name} is {t.dtype} {tuple(t.shape)} on {t.device}, it must be {dtype} {tuple(want)} "
                f"on {q.device}"
            )
    options = _options(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap)
    made = torch.ops.headroom.attention_backward(d_o, dlse, *tensors[:3], o, lse, *tensors[3:], *options)
    return tuple(made if sink is not None else made[:3])


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    *,
    is_causal: bool = False,
    scale: Optional[float] = None,
    window: Window = None,
    align: str = "bottom-right",
    return_lse: bool = False,
    variant: Optional[str] = None,
    deterministic: bool = False,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> Union[torch.Tensor, WithLse]:
    """Attention of documents packed one behind another, each seeing only itself; the arguments of flash-attn's flash_attn_varlen_func.

    q: [tokens, heads, head_dim]; k and v: [tokens_k, kv_heads, head_dim]. cu_seqlens_q: int32 [documents + 1], from 0 on: document d has the
    tokens cu_seqlens_q[d] up to cu_seqlens_q[d + 1]. cu_seqlens_k: the same of k and v; None: that of q. The rest as in attention(); the
    logarithm of the softmax's sum is [heads, tokens]. Longest lengths are not asked for.
    """
    if misspelt:
        _refuse(attention_varlen, misspelt)
    for name, t in (("q", q), ("k", k), ("v", v)):
        if isinstance(t, torch.Tensor) and t.dim() != 3:
            raise ValueError(f"headroom.torch.attention_varlen: {name} has {t.dim()} dimensions: 3 are served, [tokens, heads, head_dim]")
    batched = [t[None] if isinstance(t, torch.Tensor) else t for t in (q, k, v)]
    if cu_seqlens_q is None:
        raise TypeError("headroom.torch.attention_varlen: cu_seqlens_q is None: say where documents begin, [0, end] for one")
    out = attention(
        *batched, is_causal=is_causal, scale=scale, window=window, align=align, layout="blhd", return_lse=return_lse, variant=variant,
        deterministic=deterministic, tf32=tf32, softcap=softcap, sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
    )  # fmt: skip
    return (out[0][0], out[1][0]) if return_lse else out[0]


def _ends(name, ends, q, most):
    """int32 [batch, 2]: 0 and each of `ends`, on q's device."""
    made = q.new_zeros((q.shape[0], 2), dtype=torch.int32)
    if isinstance(ends, torch.Tensor):
        if ends.is_floating_point() or ends.dim() != 1 or ends.shape[0] != q.shape[0]:
            raise ValueError(f"headroom.torch: {name} is {ends.dtype} {tuple(ends.shape)}, it must be whole numbers ({q.shape[0]},)")
        if ends.device != q.device:
            raise ValueError(f"headroom.torch: {name} is on {ends.device}, q is on {q.device}")
        if ends.device.type == "cpu" and _directly(ends, ends, ends):
            for b, n in enumerate(ends.tolist()):
                if not 0 <= n <= most:
                    raise ValueError(f"headroom.torch: {name}[{b}] is {n}, the cache has room for {most}")
    elif isinstance(ends, bool) or not isinstance(ends, (int, torch.SymInt)):
        raise TypeError(f"headroom.torch: {name} is a {type(ends).__name__}: a tensor of {q.shape[0]} whole numbers, or one number")
    elif ends < 0 or ends > most:
        raise ValueError(f"headroom.torch: {name} is {ends}, the cache has room for {most}")
    made[:, 1] = ends
    return made


def attention_with_cache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: Union[None, int, torch.Tensor] = None,
    pages: Optional[torch.Tensor] = None,
    *,
    is_causal: bool = True,
    scale: Optional[float] = None,
    window: Window = None,
    layout: str = "bhld",
    return_lse: bool = False,
    variant: Optional[str] = None,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> Union[torch.Tensor, WithLse]:
    """Attention of a few new positions over a cache of keys and values, which has theirs already: one step of decoding.

    q: [batch, heads, new, head_dim], the newest positions of each sequence. k_cache, v_cache: [batch, kv_heads, room, head_dim]; or, with
    `pages`, [pages, kv_heads, page, head_dim]; with layout="blhd" [batch, new, heads, head_dim] and [pages, page, kv_heads, head_dim].
    lengths: whole numbers [batch], or one for all: how many keys each sequence has; None: all. What lies behind them is not read.
    pages: int32 [batch, most]: pages[b, n] is the page with the keys n * page and on of sequence b. A cache in pages has no gradients.
    The last new position is at the last key; is_causal and window count from there. The rest as in attention().
    """
    if misspelt:
        _refuse(attention_with_cache, misspelt)
    if all(isinstance(t, torch.Tensor) for t in (q, k_cache, v_cache)):
        q, k_cache, v_cache = _cast([q, k_cache, v_cache])
    paged = pages is not None
    q, k_cache, v_cache, sink, _, _ = _checked(q, k_cache, v_cache, None, 0.0, scale, True, layout, sink, None, None, paged, "attention_with_cache")
    positions = 2 if layout == "bhld" else 1
    if paged:
        pages = _listed("pages", pages, q, (q.shape[0], 1))
        if k_cache.shape[0] == 0 or k_cache.shape[positions] == 0:
            raise ValueError(f"headroom.torch: k_cache is {tuple(k_cache.shape)}: there are no pages, or nothing in one")
    cu_q = cu_k = None
    if lengths is not None:
        room = k_cache.shape[positions] * (pages.shape[1] if paged else 1)
        cu_q, cu_k = _ends("new", q.shape[positions], q, q.shape[positions]), _ends("lengths", lengths, q, room)
    window_or_causal = is_causal and window is None
    options = _options(window_or_causal, scale, window, "bottom-right", layout, variant, False, tf32, softcap)
    out = _run((q, k_cache, v_cache, sink, cu_q, cu_k, pages), options)
    return out if return_lse else out[0]


def explain(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Optional[float] = None, enable_gqa: bool = True, *, window: Window = None, align: str = "top-left", layout: str = "bhld",
    variant: Optional[str] = None, deterministic: bool = False, tf32: Optional[bool] = None, softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None, cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> str:  # fmt: skip
    """Which kernel serves this call, one line per variant, best first; or the sentence that says why the call is torch's."""
    if misspelt:
        _refuse(explain, misspelt)
    reason = why_not(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa, layout=layout)
    if reason is not None:
        return f"left to torch: {reason}\n"
    tensors = (*_checked(q, k, v, None, 0.0, scale, enable_gqa, layout, sink, cu_seqlens_q, cu_seqlens_k), None)
    options = _options(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap)
    return _arrays_attention.explained(_context_of(q), _call_of(*tensors, *options).problem)


# ---- models that call torch's function ----

_torchs = torch.nn.functional.scaled_dot_product_attention
_replacing = []  # the innermost last


class Replacement:
    """What a replace_sdpa() saw: `served` calls, and how many were `left` to torch for which reason. Calls of compiled code are
    not counted: its graph shows headroom.attention_forward where ours is."""

    def __init__(self) -> None:
        self.served = 0
        self.left: "collections.Counter[str]" = collections.Counter()

    def explain(self) -> str:
        """One line for the calls that were served, and one for each reason why others were left to torch."""
        lines = [f"served by headroom: {self.served} calls"]
        lines += [f"left to torch: {count} calls: {reason}" for reason, count in self.left.most_common()]
        return "\n".join(lines) + "\n"


def _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if seen is not None:
        seen.left[reason] += 1
    rest = {"enable_gqa": enable_gqa} if enable_gqa else {}  # torch 2.4 has no such argument
    return _torchs(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **rest)


def _sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    seen = None if torch.compiler.is_compiling() or not _replacing else _replacing[-1]
    if all(isinstance(t, torch.Tensor) for t in (query, key, value)):
        q, k, v = _cast([query, key, value])
    else:
        q, k, v = query, key, value
    reason = why_not(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    if reason is not None:
        return _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    options = _options(bool(is_causal), scale, None, "top-left", "bhld", None, torch.are_deterministic_algorithms_enabled(), None)
    try:
        o = _run((q, k, v, None, None, None, None), options)[0]
    except lib.Error as refused:  # no kernel for this device, no driver, a library without CUDA
        if refused.status != "unsupported":
            raise
        reason = str(refused)
    else:
        if seen is not None:
            seen.served += 1
        return o
    return _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@contextlib.contextmanager
def replace_sdpa() -> Iterator[Replacement]:
    """Within it torch.nn.functional.scaled_dot_product_attention is headroom's, where headroom serves the call, in every thread.

    Yields a Replacement, whose explain() says which calls were left to torch, and why.
    """
    seen = Replacement()
    _replacing.append(seen)
    torch.nn.functional.scaled_dot_product_attention = _sdpa
    try:
        yield seen
    finally:
        _replacing.remove(seen)
        if not _replacing:
            torch.nn.functional.scaled_dot_product_attention = _torchs
