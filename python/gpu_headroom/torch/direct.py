"""Without the dispatcher: what eager code runs, in a third of the time. A program that listens to operators gets the operator."""

import functools

import torch
import torch.autograd.forward_ad as _forward_ad

from . import quick
from .calls import KINDS, call_of
from .checks import with_signs
from .operators import NO_PAGES
from .transforms import COMPILED, is_differentiated_at_trace, transformed


class _Attention(torch.autograd.Function):
    """`more`: sink, cu_q, cu_k, pages, random and alibi, or nothing. Each argument, each output and each saved tensor costs time: there are few."""

    @staticmethod
    def forward(ctx, q, k, v, settled, return_lse, *more):
        call, ready, _ = settled
        o, lse = call.run_forward(ready, q, k, v, *more)
        ctx.settled = settled
        ctx.set_materialize_grads(False)
        if more:
            sink, cu_q, cu_k, ctx.pages, random, alibi = more
            more = sink, cu_q, cu_k, random, alibi
        ctx.save_for_backward(q, k, v, o, lse, *more)
        return (o, lse) if return_lse else o

    @staticmethod
    def backward(ctx, d_o, dlse=None):
        if d_o is None and dlse is None:
            return (None,) * len(ctx.needs_input_grad)
        saved = ctx.saved_tensors
        more = len(saved) > 5
        if more and ctx.pages is not None:
            raise RuntimeError(NO_PAGES)
        dq, dk, dv, dsink = _gradients(ctx.settled, saved, d_o, dlse)
        if not more:
            return dq, dk, dv, None, None
        return dq, dk, dv, None, None, None if saved[5] is None else dsink, None, None, None, None, None


def _gradients(settled, saved, d_o, dlse):
    q, k, v, o, lse, *more = saved
    call, _, options = settled
    if d_o is None:
        d_o = torch.zeros_like(o)
    d_o, dlse = with_signs((d_o, dlse))
    if torch.compiler.is_compiling() or _is_heard(d_o, dlse):  # compiled autograd knows operators alone
        return torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, *(more or (None,) * 5), *options)
    return call.backward(d_o, dlse, q, k, v, o, lse, *more)


def _is_heard(d_o, dlse):
    """Second derivatives are wanted, and the operator says that there are none; a mode came after forward; or gradients of several results at once."""
    if torch.is_grad_enabled() or _modes[0]() != 0 or _transforms() is not None:
        return True
    return any(t is not None and _has_a_batch(t) for t in (d_o, dlse))


def _general_backward(settled, saved, d_o, dlse):
    """Of a call that quick.attend() made, where its own backward does not serve. `saved`: q, k, v, o and lse, and with dropout its seed."""
    if d_o is None and dlse is None:
        return (None,) * 5
    q, k, v, o, lse, *random = saved
    more = (None, None, None, *random, None) if random else ()
    return *_gradients(settled, (q, k, v, o, lse, *more), d_o, dlse)[:3], None, None


quick.set_up(_general_backward)

try:  # code that intercepts operators must see ours: modes, functorch, tracing
    _modes = torch._C._len_torch_dispatch_stack, torch._C._len_torch_function_stack
    _transforms = torch._C._functorch.peek_interpreter_stack
    _tracing = torch._C._get_tracing_state
    any_autocast = torch._C._is_any_autocast_enabled
    _has_a_batch = getattr(torch._C._functorch, "is_legacy_batchedtensor", lambda t: False)  # a gradient that is asked for by is_grads_batched
    _direct_is_possible = _modes[0]() == 0 and _transforms() is None and _tracing() is None and any_autocast() in (False, True)
    _direct_is_possible = _direct_is_possible and _forward_ad._current_level < 0
except AttributeError:
    _direct_is_possible = False
    _transforms = None

    def any_autocast():  # nothing is kept
        return True


plain = frozenset((torch.Tensor, torch.nn.Parameter))
known = {}  # what was asked before, checked then, and settled


def directly(q, k, v):
    return (
        _direct_is_possible
        and not torch.compiler.is_compiling()  # first: compiled code knows no more of what follows
        and type(q) in plain
        and type(k) in plain
        and type(v) in plain
        and not (q.is_neg() or k.is_neg() or v.is_neg())
        and _modes[0]() == 0
        and _modes[1]() == 0
        and _transforms() is None
        and _tracing() is None
        and _forward_ad._current_level < 0
    )


def form_of_three(q, k, v):
    """What checks and kernels look at of q, k and v. RuntimeError: one has no strides."""
    return q.shape, q.stride(), k.shape, k.stride(), v.shape, v.stride(), q.dtype, k.dtype, v.dtype, q.device, k.device, v.device


def form_of(t):
    """Of a tensor beside q, k and v, or None: what checks look at, but for its numbers."""
    return None if t is None else (t.shape, t.dtype, t.layout, t.device)


def without_gradients(function):
    """As torch.no_grad() around a function, and cheaper where gradients are off already."""

    @functools.wraps(function)
    def quietly(*args, **kwargs):
        if not torch.is_grad_enabled():
            return function(*args, **kwargs)
        with torch.no_grad():
            return function(*args, **kwargs)

    return quietly


def is_transformed():
    """Whether torch.func or torch.vmap is at work in code that is not compiled."""
    return not torch.compiler.is_compiling() and _transforms is not None and _transforms() is not None


def keep(known, key, settled):
    if len(known) >= 4096:
        known.clear()
    known[key] = settled


def seed_of(q, dropout, seed=None):
    """Seed and offset of a call's dropout, int64 [2] beside q, or None: what the caller gave, else two numbers from torch's generator of the
    device. They stay there, so that a CUDA graph draws new ones at each replay."""
    return seed if dropout == 0 or seed is not None else draw_of(q.device)()


def draw_of(device):
    """Makes a seed."""
    return functools.partial(torch.randint, 0, 1 << 62, (2,), dtype=torch.int64, device=device)


def run(tensors, options, return_lse=False):
    """o, or o and lse, of checked arguments."""
    q, k, v, *_ = tensors
    if q.device.type in KINDS and directly(q, k, v):
        return run_directly(settled(tensors, options), return_lse, *tensors)
    compiling = torch.compiler.is_compiling()
    if compiling and is_differentiated_at_trace():
        raise NotImplementedError(f"gpu_headroom.torch.attention {COMPILED}: compile what is inside of them, or use torch's attention for this call")
    if not compiling and _transforms is not None and (_transforms() is not None or _forward_ad._current_level >= 0):
        out = transformed(*tensors, *options)
    else:
        out = torch.ops.headroom.attention_forward(*tensors, *options)
    return out if return_lse else out[0]


def settled(tensors, options):
    """What a call needs each time, for run_directly."""
    call = call_of(*tensors, *options)
    q, k, v, *_ = tensors
    key = call.key_of(*tensors)
    return call, call.ready[0].get(key) or call.make_ready_forward(key, *tensors), options


def run_directly(settled, return_lse, q, k, v, sink=None, cu_q=None, cu_k=None, pages=None, random=None, alibi=None):
    call, ready, _ = settled
    more = (sink, cu_q, cu_k, pages, random, alibi) if call.more else ()
    if torch.is_grad_enabled() and (q.requires_grad or k.requires_grad or v.requires_grad or (sink is not None and sink.requires_grad)):
        return _Attention.apply(q, k, v, settled, return_lse, *more)
    out = call.run_forward(ready, q, k, v, *more)
    return out if return_lse else out[0]
