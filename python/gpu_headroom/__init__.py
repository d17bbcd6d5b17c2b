"""Exact attention whose memory grows with N, not N², and forecasts of a training step's bytes: a thin door over libheadroom.

    import gpu_headroom as hr
    r = hr.attention_forward(q, k, v, mask="causal")     # r.o, r.lse
    dq, dk, dv = r.backward(d_o)                               # the mask is remembered

q is [batch, len_q, heads, head_dim]; k and v are [batch, len_k, kv_heads, head_dim]; float32, float16 or bfloat16.
Arrays are NumPy's, CuPy's, JAX's, torch's, or anything that speaks DLPack. In torch models: gpu_headroom.torch.

    hr.forecast("small", batch=4, len=1024, precision="bf16", device="h200").peak_bytes
    hr.plan("2.7B", batch=4, len=1024, device="h200", memory_gib=40)
    hr.memory_as_pytorch("small", batch=4, len=1024, precision="bf16")

The library is the one inside the wheel; $HEADROOM_LIBRARY names another.
"""

from typing import TYPE_CHECKING

from .library import Context, Error, default_context, version

if TYPE_CHECKING:
    from .attention import Attention, Forward, attention_backward, attention_forward, attention_with_cache, explain
    from .forecasts import Component, Forecast, Moment, Plan, PytorchMemory, forecast, memory_as_pytorch, plan

__all__ = [
    "Attention", "Component", "Context", "Error", "Forecast", "Forward", "Moment", "Plan", "PytorchMemory", "attention_backward",
    "attention_forward", "attention_with_cache", "default_context", "explain", "forecast", "memory_as_pytorch", "plan", "version",
]  # fmt: skip
__version__ = "0.1.0"

_LATER = {  # what is imported when it is first asked for
    "Attention": "attention", "Forward": "attention", "attention_backward": "attention", "attention_forward": "attention",
    "attention_with_cache": "attention", "explain": "attention",
    "Component": "forecasts", "Forecast": "forecasts", "Moment": "forecasts", "Plan": "forecasts", "PytorchMemory": "forecasts",
    "forecast": "forecasts", "memory_as_pytorch": "forecasts", "plan": "forecasts",
}  # fmt: skip

if not TYPE_CHECKING:  # for type checkers a name that is not above is an error

    def __getattr__(name):
        import importlib

        if name in _LATER:
            value = globals()[name] = getattr(importlib.import_module("." + _LATER[name], __name__), name)
            return value
        if name == "torch":
            return importlib.import_module(".torch", __name__)
        raise AttributeError(f"module 'gpu_headroom' has no attribute '{name}'")


def __dir__() -> "list[str]":
    return sorted([*globals(), *_LATER, "torch"])
