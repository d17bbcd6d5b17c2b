"""The autograd.Function that a course asks for, over Headroom: FlashAttention.apply(q, k, v, is_causal) of [batch, len, dim], LSE saved."""

import torch

import gpu_headroom.torch as ht


class FlashAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, is_causal=False):
        o, lse = ht.attention(*(x[:, None] for x in (q, k, v)), is_causal=is_causal, return_lse=True)  # one head
        ctx.save_for_backward(q, k, v, o[:, 0], lse[:, 0])
        ctx.is_causal = is_causal
        return o[:, 0]

    @staticmethod
    def backward(ctx, d_o):
        q, k, v, o, lse = (x[:, None] for x in ctx.saved_tensors)
        gradients = ht.attention_backward(d_o[:, None], q, k, v, o, lse, is_causal=ctx.is_causal)
        return (*(x[:, 0] for x in gradients), None)


def get_flashattention_autograd_function_pytorch():  # as Stanford's CS336, assignment 2, names it in tests/adapters.py
    return FlashAttention


if __name__ == "__main__":
    q, k, v = (torch.randn(4, 128, 64, requires_grad=True) for _ in range(3))
    o = FlashAttention.apply(q, k, v, True)
    o.sum().backward()
    want = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    print(f"largest difference from torch's: {(o - want).abs().max():.1e}")
