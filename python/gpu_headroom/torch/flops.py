"""FLOPs of the operators for torch.utils.flop_counter, counted as it counts torch's own attention: all of q k^T and p v, whatever the mask."""

import torch

from .calls import Options
from .imports import when_imported


def _products(heads_first, q, k, v):
    """FLOPs of q k^T and of p v."""
    rows, positions = (1, 2) if heads_first else (2, 1)
    scores = q[0] * q[rows] * q[positions] * k[positions]
    return 2 * scores * q[3], 2 * scores * v[3]


def _forward(q, k, v, sink, cu_q, cu_k, pages, random, alibi, *options, out_shape=None, **_):
    if pages is not None:  # k is [pages, kv_heads, page, head_dim]: a sequence has as many keys as its pages hold
        positions = 2 if Options(*options).heads_first else 1
        k = [*k]
        k[positions] *= pages[1]
    return sum(_products(Options(*options).heads_first, q, k, v))


def _backward(d_o, dlse, q, k, v, o, lse, sink, cu_q, cu_k, random, alibi, *options, out_shape=None, **_):
    of_scores, of_values = _products(Options(*options).heads_first, q, k, v)
    return 3 * of_scores + 2 * of_values  # q k^T again, dq, dk; dp, dv


def _register(counter):
    ops = torch.ops.headroom
    for operator, flops in ((ops.attention_forward, _forward), (ops.attention_backward, _backward)):
        if operator not in counter.flop_registry:
            counter.register_flop_formula(operator)(flops)


def register():
    """Make FlopCounterMode count our operators."""
    when_imported("torch.utils.flop_counter", _register)
