"""A user's program over arrays and forecasts, for type checkers: it is never run."""

import numpy as np
import numpy.typing as npt
from typing_extensions import assert_type

import gpu_headroom as hr


def attend(x: "npt.NDArray[np.float32]") -> "npt.NDArray[np.float32]":
    r = hr.attention_forward(x, x, x, mask="causal", sink=[0.5, 1.0])
    assert_type(r.o, "npt.NDArray[np.float32]")
    dq, dk, dv, dsink = r.backward(r.o)
    print(dq.shape, dk + dv, dsink, hr.attention_backward(r, r.o)[0].shape)
    of = hr.Attention((1, 2, 3, 4), (1, 2, 3, 4), context=hr.Context(threads=2))
    print(of.saved_bytes + 1, of.explain().upper(), of.forward(x, x, x).lse.shape, hr.explain(x, x, x).upper())
    hr.attention_forward(x, x, x, is_causal=True)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    hr.nothing  # type: ignore[attr-defined]  # pyright: ignore  # noqa: B018
    return hr.attention_with_cache(x, x, x, 3).o


def forecast() -> float:
    f = hr.forecast("small", batch=4, precision="bf16", device="h200")
    assert_type(f.peak_bytes, int)
    assert_type(f.fits, bool)
    print([c.name.upper() for c in f.components], [m.live_bytes + 1 for m in f.timeline])
    p = hr.plan("small", precision=["bf16", "fp32"], memory_gib=40)
    best = p.best
    m = hr.memory_as_pytorch("small", len=[128, 256])
    try:
        print(hr.version().upper())
    except hr.Error as refused:
        print(refused.status.upper())
    return (f.ms or 0.0) + (0.0 if best is None else float(best["ms_at_least"])) + m.peak_bytes
