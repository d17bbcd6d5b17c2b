"""torch.ops.headroom.attention_forward and attention_backward: attention over views; layout, mask and variant are plain values."""

import torch

from .calls import Options, call_of, like
from .checks import check_beside, check_made, misfit_of_tensors
from .vmapped import register as _register_vmap

_library = torch.library.Library("headroom", "DEF")
_WITH = "Tensor? sink, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k"
_OPTIONS = (
    "int mask, bool top_left, int window, int after, float softcap, float? scale, bool heads_first, str variant, bool deterministic, int tf32, "
    "int order=0, float dropout=0.0, bool fp8=False"
)
_library.define(f"attention_forward(Tensor q, Tensor k, Tensor v, {_WITH}, Tensor? pages, Tensor? random, Tensor? alibi, {_OPTIONS}) -> (Tensor, Tensor)")
_library.define(
    f"attention_backward(Tensor d_o, Tensor? dlse, Tensor q, Tensor k, Tensor v, Tensor o, Tensor lse, {_WITH}, Tensor? random, Tensor? alibi, {_OPTIONS}) "
    "-> (Tensor, Tensor, Tensor, Tensor)"
)


def _lse_like(q, heads_first):
    batch, a, b, _ = q.shape
    return q.new_empty((batch, a, b) if heads_first else (batch, b, a), dtype=torch.float32)


def _check(of, q, k, v, **beside):
    """Calls are kept by strides: what is not looked at here would be read as what an earlier call was given."""
    misfit = misfit_of_tensors(q, k, v)
    if misfit is not None:
        raise misfit[0](f"{of}: {misfit[1]}")
    check_beside(of, q, **beside)


def _forward(q, k, v, sink, cu_q, cu_k, pages, random, alibi, *options):
    _check("torch.ops.headroom.attention_forward", q, k, v, sink=sink, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, pages=pages, alibi=alibi)
    tensors = q, k, v, sink, cu_q, cu_k, pages, random, alibi
    return call_of(*tensors, *options).forward(*tensors)


def _backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, *options):
    of = "torch.ops.headroom.attention_backward"
    _check(of, q, k, v, sink=sink, cu_seqlens_q=cu_q, cu_seqlens_k=cu_k, alibi=alibi)
    check_made(of, q, v, Options(*options).heads_first, d_o, o, lse, dlse)
    call = call_of(q, k, v, sink, cu_q, cu_k, None, random, alibi, *options)
    *made, dsink = call.backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi)
    return (*made, q.new_empty((0,), dtype=torch.float32) if dsink is None else dsink)


for _key in ("CPU", "CUDA"):
    _library.impl("attention_forward", _forward, _key)
    _library.impl("attention_backward", _backward, _key)


@torch.library.register_fake("headroom::attention_forward", lib=_library)
def _(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, pages, random, alibi, *options):
    o = Options(*options)
    return like(q, o.heads_first, v.shape[3], o.order), _lse_like(q, o.heads_first)


@torch.library.register_fake("headroom::attention_backward", lib=_library)
def _(d_o, dlse, q, k, v, o, lse, sink, cu_seqlens_q, cu_seqlens_k, random, alibi, *options):
    dsink = q.new_empty((0 if sink is None else sink.shape[0],), dtype=torch.float32)
    return (*[like(t, Options(*options).heads_first) for t in (q, k, v)], dsink)


NO_PAGES = "gpu_headroom.torch: a cache in pages has no gradients: call it under torch.no_grad(), or with k and v as they are"


def remember(ctx, inputs, output):
    q, k, v, sink, cu_q, cu_k, pages, random, alibi, *ctx.options = inputs
    o, lse = output
    ctx.save_for_backward(q, k, v, o, lse, sink, cu_q, cu_k, random, alibi)
    ctx.paged = pages is not None
    ctx.set_materialize_grads(False)


def gradients(ctx, d_o, dlse, backward=None):
    """What autograd asks after `remember`; `backward`: the operator, or its substitute."""
    nothing = (None,) * (5 + len(ctx.options))
    if d_o is None and dlse is None:
        return (None, None, None, None, *nothing)
    if ctx.paged:
        raise RuntimeError(NO_PAGES)
    q, k, v, o, lse, sink, cu_q, cu_k, random, alibi = ctx.saved_tensors
    if d_o is None:
        d_o = torch.zeros_like(o)
    backward = torch.ops.headroom.attention_backward if backward is None else backward
    dq, dk, dv, dsink = backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, *ctx.options)
    return (dq, dk, dv, None if sink is None else dsink, *nothing)


def no_second(ctx, *gradients):
    raise RuntimeError("gpu_headroom.torch has no second derivatives of attention: use torch's math backend for this model")


torch.library.register_autograd("headroom::attention_forward", gradients, setup_context=remember, lib=_library)
torch.library.register_autograd("headroom::attention_backward", no_second, setup_context=lambda ctx, inputs, output: None, lib=_library)
_register_vmap(_library)
