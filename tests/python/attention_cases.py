"""Inputs of attention, and one call of both passes. Exit code 77 says: skipped, and why."""

import sys

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

import gpu_headroom as hr


def inputs(dtype=np.float32, len_q=33, len_k=40, heads=4, kv_heads=2, dim=16):
    random = np.random.default_rng(7)
    shape = lambda length, h: (2, length, h, dim)  # noqa: E731
    return [random.standard_normal(shape(*s)).astype(dtype) for s in ((len_q, heads), (len_k, kv_heads), (len_k, kv_heads), (len_q, heads))]


def attend(q, k, v, d_o, **options):
    r = hr.attention_forward(q, k, v, **options)
    return [r.o, r.lse, *r.backward(d_o)]
