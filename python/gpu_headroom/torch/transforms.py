"""The operators for torch.func and forward derivatives, which an operator's own autograd does not know."""

import torch
import torch.autograd.forward_ad as _forward_ad

from .operators import gradients, no_second, remember

NO_FORWARD_MODE = "gpu_headroom.torch has no forward-mode derivatives of attention"
COMPILED = "where torch.compile is around torch.func.grad, vjp or jvp, in which it supports PyTorch's own operators alone"
FUNCTIONALIZED = "where torch.func.functionalize is asked for gradients, which it does not support of custom autograd functions"


def is_functionalized():
    """Whether a call is inside torch.func.functionalize."""
    functorch = torch._C._functorch
    return any(one.key() == functorch.TransformType.Functionalize for one in functorch.get_interpreter_stack() or ())


def is_differentiated():
    """Whether a call is inside torch.func's grad or jvp, or forward-mode derivatives."""
    kinds = torch._C._functorch.TransformType
    stack = torch._C._functorch.get_interpreter_stack() or ()
    return _forward_ad._current_level >= 0 or any(one.key() in (kinds.Grad, kinds.Jvp) for one in stack)


def at_trace(function):
    """What torch.compiler.assume_constant_result does, without its import of the compiler: called once, while code is traced."""
    function._dynamo_marked_constant = True
    return function


@at_trace
def is_differentiated_at_trace():
    """The same of code that is compiled, where the compiler reads it."""
    return is_differentiated()


def transformed(*arguments):
    """The operator inside transforms; functionalize alone, and vmap in it, need no autograd.Function."""
    if not is_functionalized():
        return Transformed.apply(*arguments)
    if is_differentiated():
        raise NotImplementedError(f"gpu_headroom.torch.attention {FUNCTIONALIZED}: use torch's math attention for this call")
    return torch.ops.headroom.attention_forward(*arguments)


class Transformed(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(q, k, v, sink, cu_q, cu_k, pages, random, alibi, *options):
        return torch.ops.headroom.attention_forward(q, k, v, sink, cu_q, cu_k, pages, random, alibi, *options)

    setup_context = staticmethod(remember)

    @staticmethod
    def backward(ctx, d_o, dlse):
        return gradients(ctx, d_o, dlse, _TransformedBackward.apply)

    @staticmethod
    def jvp(ctx, *tangents):
        raise NotImplementedError(NO_FORWARD_MODE + ": use those of backward, or torch's math attention for this call")


class _TransformedBackward(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, *options):
        return torch.ops.headroom.attention_backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, *options)

    @staticmethod
    def setup_context(ctx, inputs, output):
        pass

    backward = staticmethod(no_second)
