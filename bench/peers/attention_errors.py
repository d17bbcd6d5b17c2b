#!/usr/bin/env python3
"""Errors of attention on the GPU against FP64: every variant of ours that serves a precision, and PyTorch's, on the same inputs.

    cmake --build --preset release --target headroom_variants
    python3 bench/peers/attention_errors.py build/release/libheadroom_variants.so [--dim 64 --len 1024]

Per result, in units of its RMS: largest error, RMS of the error, and bias, the mean of error · sign(exact value) (what truncation
would show), beside the noise that a mean over so many errors has anyway (RMS / sqrt n). PyTorch: "naive" is softmax(scale · Q Kᵀ + mask) V
written with matmul under autograd; the others are backends of scaled_dot_product_attention.
"""

import argparse
import ctypes as c
import math

import torch
from attention_gpu import Ours
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

VARIANTS = ("flash_sm90", "flash_sm80", "flash_simt", "plain_cuda")
PEERS = {"flash": SDPBackend.FLASH_ATTENTION, "cudnn": SDPBackend.CUDNN_ATTENTION, "efficient": SDPBackend.EFFICIENT_ATTENTION}
PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "tf32": torch.float32}
GRADIENTS = {"dq": "q", "dk": "k", "dv": "v"}


def naive(q, k, v, causal):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool, device=s.device).triu(1), -math.inf)
    return torch.softmax(s, -1) @ v


def through_autograd(attention, t, dtype):
    q, k, v = (t[name].to(dtype).transpose(1, 2).detach().requires_grad_() for name in "qkv")
    o = attention(q, k, v)
    o.backward(t["d_o"].to(dtype).transpose(1, 2))
    return {name: x.transpose(1, 2).detach() for name, x in {"o": o, "dq": q.grad, "dk": k.grad, "dv": v.grad}.items()}


def ours(library, variant, t, causal, precision):
    for which in (0, 1):
        Ours(library, variant, t, causal, which, tf32=precision == "tf32")()
    torch.cuda.synchronize()
    return {name: t[name].clone() for name in ("o", *GRADIENTS)}


def peer(backend, t, causal, dtype):
    def attention(q, k, v):
        with sdpa_kernel(backend):
            return sdpa(q, k, v, is_causal=causal)

    return through_autograd(attention, t, dtype)


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("library")
    options.add_argument("--dim", type=int, default=64)
    options.add_argument("--len", type=int, default=1024)
    options.add_argument("--len-q", type=int, default=0)
    options.add_argument("--heads", type=int, default=8)
    options.add_argument("--full", action="store_true", help="no causal mask")
    options.add_argument("--precisions", default="bf16,fp16,tf32,fp32")
    options.add_argument("--seeds", type=int, default=1, help="errors of so many random problems together")
    a = options.parse_args()
    library = c.CDLL(a.library)
    library.variant_error.restype = c.c_char_p
    causal = not a.full
    print(f"# {torch.cuda.get_device_name()} · PyTorch {torch.__version__} · heads {a.heads}, len {a.len_q or a.len} x {a.len}, dim {a.dim}, {'causal' if causal else 'full'}, {a.seeds} seeds")
    print("| precision | who | " + " | ".join(f"{name}: max · rms · bias (noise)" for name in ("o", *GRADIENTS)) + " |\n|---|---|---|---|---|---|")
    for precision in a.precisions.split(","):
        dtype = PRECISIONS[precision]
        errors, sizes, why = {}, {}, {}
        for seed in range(a.seeds):
            torch.manual_seed(seed)
            make = lambda n: torch.randn(1, n, a.heads, a.dim, device="cuda").to(dtype)  # noqa: E731
            t = {name: make(a.len_q or a.len) for name in ("q", "o", "d_o", "dq")} | {name: make(a.len) for name in ("k", "v", "dk", "dv")}
            t["lse"] = torch.empty(1, a.heads, a.len_q or a.len, device="cuda")
            exact = through_autograd(lambda q, k, v: naive(q, k, v, causal), t, torch.float64)
            torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
            candidates = {variant: lambda v=variant: ours(library, v, t, causal, precision) for variant in VARIANTS}
            candidates["PyTorch naive"] = lambda: through_autograd(lambda q, k, v: naive(q, k, v, causal), t, dtype)
            for name, backend in PEERS.items():
                candidates[f"PyTorch {name}"] = lambda b=backend: peer(b, t, causal, dtype)
            for who, run in candidates.items():
                try:
                    results = run()
                except RuntimeError as e:
                    why[who] = str(e).splitlines()[0]
                    continue
                for name, right in exact.items():
                    error = results[name].double() - right
                    errors.setdefault((who, name), []).append(torch.stack([error.flatten(), (error * right.sign()).flatten()]))
            for name, right in exact.items():
                sizes.setdefault(name, []).append(right.flatten())
            torch.backends.cuda.matmul.allow_tf32 = False
        scale = {name: torch.cat(parts).square().mean().sqrt().item() for name, parts in sizes.items()}
        for who in candidates:
            if (who, "o") not in errors:
                continue
            cells = []
            for name in exact:
                e, signed = torch.cat(errors[who, name], 1)
                rms = e.square().mean().sqrt().item()
                cells.append(" · ".join(f"{x / scale[name]:.1e}" for x in (e.abs().max().item(), rms, signed.mean().item())) + f" ({rms / scale[name] / math.sqrt(e.numel()):.0e})")
            print(f"| {precision} | {who} | " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
