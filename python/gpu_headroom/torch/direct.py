"""Without the dispatcher: what eager code runs, in a third of the time. A program that listens to operators gets the operator."""

import torch
import torch.autograd.forward_ad as _forward_ad

from .calls import KINDS, call_of
from .operators import NO_PAGES
from .transforms import Transformed


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, sink, cu_q, cu_k, pages, random, call, ready, options):
        o, lse = call.run_forward(ready, q, k, v, sink, cu_q, cu_k, pages, random)
        ctx.save_for_backward(q, k, v, o, lse, sink, cu_q, cu_k, random)
        ctx.call, ctx.options, ctx.paged = call, options, pages is not None
        ctx.set_materialize_grads(False)
        return o, lse

    @staticmethod
    def backward(ctx, d_o, dlse):
        if d_o is None and dlse is None:
            return (None,) * 11
        if ctx.paged:
            raise RuntimeError(NO_PAGES)
        q, k, v, o, lse, sink, cu_q, cu_k, random = ctx.saved_tensors
        if d_o is None:
            d_o = torch.zeros_like(o)
        if torch.is_grad_enabled():  # second derivatives are wanted: the operator says that there are none
            *made, dsink = torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, *ctx.options)
            return (*made, None if sink is None else dsink, *(None,) * 7)
        return (*ctx.call.backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random), *(None,) * 7)


try:  # code that intercepts operators must see ours: modes, functorch, tracing
    _modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    _transforms = torch._C._functorch.peek_interpreter_stack
    _tracing = torch._C._get_tracing_state
    any_autocast = torch._C._is_any_autocast_enabled
    _direct_is_possible = _modes[0]() == 0 and _transforms() is None and _tracing() is None and any_autocast() in (False, True)
    _direct_is_possible = _direct_is_possible and _forward_ad._current_level < 0
except AttributeError:
    _direct_is_possible = False
    _transforms = any_autocast = None
_plain = frozenset((torch.Tensor, torch.nn.Parameter))
plain_or_none = _plain | {type(None)}
known = {}  # (call, ready, options) of what was asked before, checked then


def directly(q, k, v):
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


def seed_of(q, dropout, seed=None):
    """Seed and offset of a call's dropout, int64 [2] beside q, or None: what the caller gave, else two numbers from torch's generator of the
    device. They stay there, so that a CUDA graph draws new ones at each replay."""
    if dropout == 0 or seed is not None:
        return seed
    return torch.randint(0, 1 << 62, (2,), dtype=torch.int64, device=q.device)


def run(tensors, options):
    """o and lse of checked arguments."""
    q, k, v, *_ = tensors
    if q.device.type in KINDS and directly(q, k, v):
        return run_directly(tensors, *settled(tensors, options))
    if not torch.compiler.is_compiling() and _transforms is not None and (_transforms() is not None or _forward_ad._current_level >= 0):
        return Transformed.apply(*tensors, *options)
    return torch.ops.headroom.attention_forward(*tensors, *options)


def settled(tensors, options):
    call = call_of(*tensors, *options)
    q, k, v, *_ = tensors
    key = q.stride(), k.stride(), v.stride()
    return call, call.ready[0].get(key) or call.make_ready_forward(key, *tensors), options


def run_directly(tensors, call, ready, options):
    q, k, v, sink, *_ = tensors
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)):
        return _Attention.apply(*tensors, call, ready, options)
    return call.run_forward(ready, *tensors)
