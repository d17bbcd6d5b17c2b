"""Exact attention as an operator of PyTorch: CPU and CUDA, autograd, torch.compile, CUDA graphs, any strides.

    import headroom.torch as ht
    o = ht.attention(q, k, v, is_causal=True)                      # [batch, heads, len, head_dim], as torch has it
    o, lse = ht.attention(q, k, v, layout="blhd", return_lse=True) # [batch, len, heads, head_dim]; both are differentiable

    with ht.replace_sdpa() as replaced:                            # an unchanged model goes through it
        model(tokens)
    print(replaced.explain())                                      # which calls were left to torch, and why

The operators are torch.ops.headroom.attention_forward and attention_backward. torch >= 2.4.
"""

import collections
import contextlib
import ctypes as c
import functools
import math
import numbers
import struct

import torch

from . import arrays
from . import attention as _arrays_attention
from . import library as lib

if tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) < (2, 4):
    raise ImportError(f"headroom.torch needs torch 2.4 or newer, this is {torch.__version__}")

__all__ = ["attention", "explain", "replace_sdpa", "why_not"]

_NAMES = {torch.float32: "float32", torch.bfloat16: "bfloat16", torch.float16: "float16"}
_KINDS = ("cpu", "cuda")
_LAYOUTS = ("bhld", "blhd")

# ---- the operators: attention over views, whose layout, mask and variant are said in plain values ----

_library = torch.library.Library("headroom", "DEF")
_OPTIONS = (
    "int mask, bool top_left, int window, int after, float softcap, float? scale, bool heads_first, str variant, bool deterministic, int tf32"
)
_library.define(f"attention_forward(Tensor q, Tensor k, Tensor v, {_OPTIONS}) -> (Tensor, Tensor)")
_library.define(
    f"attention_backward(Tensor d_o, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor)"
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


_FORWARD, _BACKWARD = lib.ForwardArguments, lib.BackwardArguments
_AT = {kind: {name: getattr(kind, name).offset for name, _ in kind._fields_} for kind in (_FORWARD, _BACKWARD)}
_put_pointer = struct.Struct("=Q").pack_into
_put_memory = struct.Struct("=QQ").pack_into
_CODES = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2}


class _Call:
    """What one problem needs each time, worked out once: the C structs without their pointers, the bytes of workspace."""

    def __init__(self, context, shapes, dtype, options, heads_first, tf32):
        (batch, heads, len_q, dim), (kv_heads, len_k, dim_v) = shapes
        mask, top_left, window, after, softcap, scale, variant, deterministic = options
        self.context, self.heads_first = context, heads_first
        self.problem = _arrays_attention.make_problem(
            (batch, len_q, heads, dim), (batch, len_k, kv_heads, dim), dtype, "full", scale, variant or "flash", deterministic, tf32,
            dim_v, softcap,
        )  # fmt: skip
        self.problem.mask, self.problem.align, self.problem.window, self.problem.window_after = mask, int(top_left), window, after
        saved = _arrays_attention.bytes_of("headroom_attention_saved_bytes", context, self.problem)
        if saved:
            raise ValueError(f"variant '{variant}' keeps {saved} bytes beside q, k, v, o and lse: headroom.torch serves flash variants")
        self.workspace = [_arrays_attention.bytes_of("headroom_attention_workspace_bytes", context, self.problem, i) for i in (0, 1)]
        self.problem_at = c.byref(self.problem)
        self.lse_shape = (batch, heads, len_q)
        library = lib.library()
        self.calls = library.headroom_attention_forward, library.headroom_attention_backward
        self.templates = {}  # the arguments of tensors with these strides

    def template(self, kind, tensors):
        arguments = kind(struct_size=c.sizeof(kind), flags=lib.TRUST_POINTERS)
        for name, t in tensors.items():
            if t is None:
                continue
            shape, stride = t.shape, t.stride()
            if self.heads_first and t.dim() == 4:
                shape, stride = (shape[0], shape[2], shape[1], shape[3]), (stride[0], stride[2], stride[1], stride[3])
            view = getattr(arguments, name)
            view.dtype, view.rank = _CODES[t.dtype], len(shape)
            view.shape[: len(shape)], view.stride[: len(shape)] = shape, stride
        return bytes(arguments)

    def run(self, which, tensors, like):
        kind = _BACKWARD if which else _FORWARD
        key = (which, *[None if t is None else t.stride() for t in tensors.values()])
        template = self.templates.get(key)
        if template is None:
            if len(self.templates) >= 256:
                self.templates.clear()
            template = self.templates[key] = self.template(kind, tensors)
        arguments, at = bytearray(template), _AT[kind]
        for name, t in tensors.items():
            if t is not None:
                _put_pointer(arguments, at[name], t.data_ptr())
        size = self.workspace[which]
        if size:
            held = torch.empty(size + (0 if like.is_cuda else lib.ALIGNMENT), dtype=torch.uint8, device=like.device)
            pointer = held.data_ptr()
            _put_memory(arguments, at["workspace"], pointer + -pointer % lib.ALIGNMENT, size)
        if like.is_cuda:
            _put_pointer(arguments, at["stream"], torch.cuda.current_stream(like.device).cuda_stream)
        status = self.calls[which](self.context, self.problem_at, kind.from_buffer(arguments))
        if status:
            raise lib.failed(status)

    def forward(self, q, k, v):
        heads_first = self.heads_first
        o, lse = _like(q, heads_first, v.shape[3]), q.new_empty(self.lse_shape, dtype=torch.float32)
        self.run(0, {"q": _readable(q, heads_first), "k": _readable(k, heads_first), "v": _readable(v, heads_first), "o": o, "lse": lse}, q)
        return o, lse

    def backward(self, d_o, dlse, q, k, v, o, lse):
        heads_first = self.heads_first
        made = tuple(_like(t, heads_first) for t in (q, k, v))
        tensors = {name: _readable(t, heads_first) for name, t in (("q", q), ("k", k), ("v", v), ("o", o), ("d_o", d_o))}
        tensors["lse"], tensors["dlse"] = lse.contiguous(), None if dlse is None else dlse.contiguous()
        tensors["dq"], tensors["dk"], tensors["dv"] = made
        self.run(1, tensors, q)
        return made


@functools.lru_cache(maxsize=4096)
def _call(context, shapes, dtype, options, heads_first, tf32):
    return _Call(context, shapes, dtype, options, heads_first, tf32)


def _call_of(q, k, v, mask, top_left, window, after, softcap, scale, heads_first, variant, deterministic, tf32):
    rows, positions = (1, 2) if heads_first else (2, 1)
    a, b = q.shape, k.shape
    shapes = (a[0], a[rows], a[positions], a[3]), (b[rows], b[positions], v.shape[3])
    options = (mask, top_left, window, after, softcap, scale, variant, deterministic)
    return _call(_context_of(q), shapes, _NAMES[q.dtype], options, heads_first, _tf32(tf32, q))


def _readable(t, heads_first):
    """`t`, or a copy of it where no kernel reads its strides: expanded or transposed gradients, slices off every boundary."""
    shape, stride = t.shape, t.stride()
    width, step = shape[3], stride[2 if heads_first else 1]
    fine = width <= 1 or stride[3] == 1
    fine = fine and (shape[2 if heads_first else 1] <= 1 or step >= width)
    if fine and t.is_cuda:
        fine = all(n <= 1 or s > 0 for n, s in zip(shape, stride))
        size = t.element_size()
        if fine and width * size % 16 == 0:  # what the fastest kernels load at once
            fine = t.data_ptr() % 16 == 0 and all(n <= 1 or s * size % 16 == 0 for n, s in zip(shape[:3], stride[:3]))
    return t if fine else t.clone(memory_format=torch.contiguous_format)


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


def _forward(q, k, v, *options):
    return _call_of(q, k, v, *options).forward(q, k, v)


def _backward(d_o, dlse, q, k, v, o, lse, *options):
    return _call_of(q, k, v, *options).backward(d_o, dlse, q, k, v, o, lse)


for _key in ("CPU", "CUDA"):
    _library.impl("attention_forward", _forward, _key)
    _library.impl("attention_backward", _backward, _key)


@torch.library.register_fake("headroom::attention_forward", lib=_library)
def _(q, k, v, mask, top_left, window, after, softcap, scale, heads_first, variant, deterministic, tf32):
    return _like(q, heads_first, v.shape[3]), _lse_like(q, heads_first)


@torch.library.register_fake("headroom::attention_backward", lib=_library)
def _(d_o, dlse, q, k, v, o, lse, mask, top_left, window, after, softcap, scale, heads_first, variant, deterministic, tf32):
    return tuple(_like(t, heads_first) for t in (q, k, v))


def _remember(ctx, inputs, output):
    q, k, v, *ctx.options = inputs
    o, lse = output
    ctx.save_for_backward(q, k, v, o, lse)
    ctx.set_materialize_grads(False)


def _gradients(ctx, d_o, dlse):
    nothing = (None,) * len(ctx.options)
    if d_o is None and dlse is None:
        return (None, None, None, *nothing)
    q, k, v, o, lse = ctx.saved_tensors
    if d_o is None:
        d_o = torch.zeros_like(o)
    return (*torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, *ctx.options), *nothing)


def _no_second(ctx, *gradients):
    raise RuntimeError("headroom.torch has no second derivatives of attention: use torch's math backend for this model")


torch.library.register_autograd("headroom::attention_forward", _gradients, setup_context=_remember, lib=_library)
torch.library.register_autograd("headroom::attention_backward", _no_second, setup_context=lambda ctx, inputs, output: None, lib=_library)


# ---- without the dispatcher: what eager code runs, in a third of the time ----


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, call, options):
        o, lse = call.forward(q, k, v)
        ctx.save_for_backward(q, k, v, o, lse)
        ctx.call, ctx.options = call, options
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx, d_o, dlse):
        if d_o is None and dlse is None:
            return None, None, None, None, None
        q, k, v, o, lse = ctx.saved_tensors
        if d_o is None:
            d_o = torch.zeros_like(o)
        if torch.is_grad_enabled():  # second derivatives are wanted: the operator says that there are none
            return (*torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, *ctx.options), None, None)
        return (*ctx.call.backward(d_o, dlse, q, k, v, o, lse), None, None)


try:  # whoever listens to operators must hear of ours: modes, functorch, tracing
    _modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    _transforms = torch._C._functorch.peek_interpreter_stack
    _tracing = torch._C._get_tracing_state
    _direct_is_possible = _modes[0]() == 0 and _transforms() is None and _tracing() is None
except AttributeError:
    _direct_is_possible = False
_plain = frozenset((torch.Tensor, torch.nn.Parameter))
_calls = {}  # (call, options) of what attention() was asked before, checked then


def _directly(q, k, v):
    return (
        _direct_is_possible
        and not torch.compiler.is_compiling()
        and type(q) in _plain
        and type(k) in _plain
        and type(v) in _plain
        and q.device.type in _KINDS
        and _modes[0]() == 0
        and _modes[1]() == 0
        and _transforms() is None
        and _tracing() is None
    )


def _run(q, k, v, options):
    """o and lse of checked arguments."""
    if not _directly(q, k, v):
        return torch.ops.headroom.attention_forward(q, k, v, *options)
    return _run_directly(q, k, v, _call_of(q, k, v, *options), options)


def _run_directly(q, k, v, call, options):
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad):
        return _Attention.apply(q, k, v, call, options)
    return call.forward(q, k, v)


# ---- the call ----


def why_not(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=True, *, layout="bhld"):
    """None when headroom serves this call of scaled_dot_product_attention, else the reason why not, in one sentence."""
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
    rows, positions = (1, 2) if layout == "bhld" else (2, 1)
    if k.shape[:3] != v.shape[:3]:
        return f"k is {tuple(k.shape)} and v is {tuple(v.shape)}: all but head_dim must agree"
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3]:
        return f"q is {tuple(q.shape)} and k is {tuple(k.shape)}: batch and head_dim must agree"
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


def _options(q, k, is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap=0.0):
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
    if scale is not None and not -math.inf < scale < math.inf:  # in words that compiled code has for symbols too
        raise ValueError(f"scale is {scale}: it must be finite")
    if isinstance(softcap, bool) or not isinstance(softcap, (int, float, torch.SymFloat)) or not 0 <= softcap < math.inf:
        raise ValueError(f"softcap is {softcap!r}: a number above 0, or 0 for none")
    mask = 2 if window is not None else 1 if is_causal else 0
    width, after = (0, 0) if window is None else both
    scale = None if scale is None else float(scale)
    return (mask, align == "top-left" and mask != 0, width, after, float(softcap), scale, layout == "bhld", variant or "", bool(deterministic),
            -1 if tf32 is None else int(bool(tf32)))  # fmt: skip


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask=None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale=None,
    enable_gqa: bool = True,
    *,
    window=None,
    align: str = "top-left",
    layout: str = "bhld",
    return_lse: bool = False,
    variant=None,
    deterministic: bool = False,
    tf32=None,
    softcap: float = 0.0,
):
    """softmax(scale * q k^T + mask) v, exactly; the arguments of torch's scaled_dot_product_attention, and more.

    q: [batch, heads, len_q, head_dim]; k and v: [batch, kv_heads, len_k, head_dim], where kv_heads divides heads; with
    layout="blhd" [batch, len, heads, head_dim]. float32, bfloat16 or float16, CPU or CUDA, any strides. head_dim up to 256.
    v may have a head_dim of its own, which is then o's.
    window: a row sees its own position and the window - 1 before it; (window, n): and the n after it. softcap: scores become
    softcap * tanh(score / softcap), as in Gemma 2. align: where the diagonal of is_causal and window begins
    when len_q and len_k differ: "top-left" as torch's is_causal, "bottom-right" as flash-attn's. scale: None is 1/sqrt(head_dim).
    return_lse: also the logarithm of the softmax's sum, float32 [batch, heads, len_q], differentiable too.
    tf32: of float32 on CUDA; None: as torch.backends.cuda.matmul.allow_tf32 says. attn_mask and dropout_p are refused.
    """
    key = None
    if attn_mask is None and not dropout_p and _directly(q, k, v) and not torch.is_autocast_enabled(q.device.type):
        key = (
            q.shape, k.shape, v.shape, q.dtype, k.dtype, v.dtype, q.device, k.device, v.device, torch.get_num_threads(),
            is_causal, scale, enable_gqa, window, align, layout, variant, deterministic, softcap,
            _tf32(-1, q) if tf32 is None and q.dtype == torch.float32 else tf32,
        )  # fmt: skip
        found = _calls.get(key)
        if found is not None:
            o, lse = _run_directly(q, k, v, *found)
            return (o, lse) if return_lse else o
    elif all(isinstance(t, torch.Tensor) for t in (q, k, v)):
        q, k, v = _cast([q, k, v])
    reason = why_not(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa, layout=layout)
    if reason is not None:
        wrong_type = " is a " in reason or " is torch." in reason or ", q is torch." in reason
        raise (TypeError if wrong_type else ValueError)(f"headroom.torch.attention: {reason}")
    options = _options(q, k, is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap)
    if key is not None:
        if len(_calls) >= 4096:
            _calls.clear()
        _calls[key] = _call_of(q, k, v, *options), options
    o, lse = _run(q, k, v, options)
    return (o, lse) if return_lse else o


def explain(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=True, *, window=None, align="top-left",
            layout="bhld", variant=None, deterministic=False, tf32=None, softcap=0.0):  # fmt: skip
    """Which kernel serves this call, one line per variant, best first; or the sentence that says why the call is torch's."""
    reason = why_not(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa, layout=layout)
    if reason is not None:
        return f"left to torch: {reason}\n"
    options = _options(q, k, is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap)
    return _arrays_attention.explained(_context_of(q), _call_of(q, k, v, *options).problem)


# ---- models that call torch's function ----

_torchs = torch.nn.functional.scaled_dot_product_attention
_replacing = []  # the innermost last


class Replacement:
    """What a replace_sdpa() saw: `served` calls, and how many were `left` to torch for which reason (calls of compiled code are
    counted when they are compiled)."""

    def __init__(self):
        self.served = 0
        self.left = collections.Counter()

    def explain(self):
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
    options = _options(q, k, bool(is_causal), scale, None, "top-left", "bhld", None, False, None)
    try:
        o = _run(q, k, v, options)[0]
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
def replace_sdpa():
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
