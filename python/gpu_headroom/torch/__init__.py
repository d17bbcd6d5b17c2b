"""Exact attention as an operator of PyTorch: CPU and CUDA, autograd, torch.compile, CUDA graphs, any strides.

    import gpu_headroom.torch as ht
    o = ht.attention(q, k, v, is_causal=True)                      # [batch, heads, len, head_dim], as torch has it
    o, lse = ht.attention(q, k, v, layout="blhd", return_lse=True) # [batch, len, heads, head_dim]; both are differentiable
    o = ht.attention_varlen(q, k, v, cu_seqlens, is_causal=True)   # documents packed one behind another: [tokens, heads, head_dim]
    o = ht.attention_with_cache(q, k_cache, v_cache, lengths)      # new positions over a cache, which may lie in pages

    with ht.replace_sdpa() as replaced:                            # an unchanged model goes through it
        model(tokens)
    print(replaced.explain())                                      # which calls were left to torch, and why

    AutoModel.from_pretrained(name, attn_implementation="headroom")  # transformers: windows, caps, sinks, padding, packed documents
    print(ht.explain())                                            # what it served, and what it left to transformers, and why
    print(ht.forecast(train, 8, device="h100"))                    # does a function fit? It runs dry in a process of its own, without a GPU

The operators are torch.ops.headroom.attention_forward and attention_backward. torch >= 2.4.
"""

import torch

if tuple(int(n) for n in torch.__version__.split("+")[0].split(".")[:2]) < (2, 4):
    raise ImportError(f"gpu_headroom.torch needs torch 2.4 or newer, this is {torch.__version__}")

from .backward import attention_backward
from .dry import ProgramForecast, forecast
from .functions import Window, attention, attention_varlen, attention_with_cache, explain, why_not  # noqa: F401
from .flops import register as _count_flops
from .models import register as _serve_transformers
from .sdpa import Replacement, replace_sdpa
from .sharding import register as _split_dtensors

_count_flops()
_serve_transformers()
_split_dtensors()

__all__ = [
    "ProgramForecast", "Replacement", "attention", "attention_backward", "attention_varlen", "attention_with_cache", "explain", "forecast",
    "replace_sdpa", "why_not",
]  # fmt: skip
