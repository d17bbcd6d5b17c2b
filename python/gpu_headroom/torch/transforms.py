"""The operators for torch.func and forward derivatives, which an operator's own autograd does not know."""

import torch

from .operators import gradients, no_second, remember


NO_FORWARD_MODE = "gpu_headroom.torch has no forward-mode derivatives of attention"


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
