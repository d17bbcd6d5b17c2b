"""Exact attention whose memory grows with N, not N²: a thin door over libheadroom's C interface.

    import headroom
    o, lse, saved = headroom.attention_forward(q, k, v, mask="causal")
    dq, dk, dv = headroom.attention_backward(q, k, v, o, lse, d_o, saved, mask="causal")

q is [batch, len_q, heads, head_dim]; k and v are [batch, len_k, kv_heads, head_dim]; fp32, fp16, or bf16 as its uint16 bits.
Arrays are NumPy's, or anything that NumPy can view without a copy (__array_interface__, the buffer protocol, DLPack on the CPU).
The library is looked for in $HEADROOM_LIBRARY, then where the system looks for libheadroom.so.
"""

from .attention import Attention, attention_backward, attention_forward, explain
from .library import Context, Error, default_context, version

__all__ = ["Attention", "Context", "Error", "attention_backward", "attention_forward", "default_context", "explain", "version"]
__version__ = "0.1.0"
