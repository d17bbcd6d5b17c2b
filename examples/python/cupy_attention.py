"""Attention on CuPy arrays by DLPack, nothing copied, on CuPy's current stream; forward and backward."""

import cupy

import gpu_headroom as hr

q, k, v = (cupy.random.standard_normal((2, 64, 4, 32), dtype=cupy.float32) for _ in range(3))
with cupy.cuda.Stream():
    r = hr.attention_forward(q, k, v, mask="causal")
    d_o = cupy.ones_like(r.o)
    dq, dk, dv = r.backward(d_o)

    scores = cupy.einsum("bihd,bjhd->bhij", q, k) / 32**0.5  # the same by hand, in FP32
    p = cupy.exp(cupy.where(cupy.tri(64, dtype=bool), scores, -cupy.inf) - r.lse[..., None])
    dp = cupy.einsum("bihd,bjhd->bhij", d_o, v)
    ds = p * (dp - (p * dp).sum(-1, keepdims=True)) / 32**0.5
    by_hand = {
        "o": (r.o, cupy.einsum("bhij,bjhd->bihd", p, v)),
        "dq": (dq, cupy.einsum("bhij,bjhd->bihd", ds, k)),
        "dk": (dk, cupy.einsum("bhij,bihd->bjhd", ds, q)),
        "dv": (dv, cupy.einsum("bhij,bihd->bjhd", p, d_o)),
    }
    for name, (ours, wanted) in by_hand.items():
        print(f"{name} {type(ours).__name__} {ours.shape} {float(cupy.abs(ours - wanted).max()):.1e}")
