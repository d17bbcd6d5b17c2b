#!/usr/bin/env python3
"""Attention on the GPU in every precision: errors against FP64, or speed, of each variant of ours that serves it and of PyTorch, on the same inputs.

    cmake --build --preset release --target headroom_variants
    python3 bench/peers/attention_precisions.py build/release/libheadroom_variants.so [--dim 64 --len 1024]
    python3 bench/peers/attention_precisions.py build/release/libheadroom_variants.so --time --dim 64,128 --len 1024,4096 --precisions fp32,tf32

Per result, in units of its RMS: largest error, RMS of the error, and bias, the mean of error · sign(exact value) (what truncation
would show), beside the noise that a mean over so many errors has anyway (RMS / sqrt n). PyTorch: "naive" is softmax(scale · Q Kᵀ + mask) V
written with matmul under autograd; the others are backends of scaled_dot_product_attention. With --time: milliseconds and TFLOP/s (backward 2.5 × forward by convention), 16 384 tokens, width 2048, the
candidates taking turns, the median of the rounds.
"""

import argparse
import ctypes as c
import math
import statistics

import torch
from attention_gpu import DTYPES, Ours
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

VARIANTS = ("flash_sm90", "flash_sm80", "flash_sm80_fp32", "flash_simt", "plain_cuda")
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


def both(library, variant, t, causal):
    """Forward and backward of a variant of ours; what the one saves, the other reads."""
    forward, backward = (Ours(library, variant, t, causal, which) for which in (0, 1))
    backward.saved_by, backward.pointers.saved = forward, forward.pointers.saved
    return [forward, backward]


def ours(library, variant, t, causal):
    for call in both(library, variant, t, causal):
        call()
    torch.cuda.synchronize()
    return {name: t[name].clone() for name in ("o", *GRADIENTS)}


def peer(backend, t, causal, dtype):
    def attention(q, k, v):
        with sdpa_kernel(backend):
            return sdpa(q, k, v, is_causal=causal)

    return through_autograd(attention, t, dtype)


def set_tf32(wanted):
    torch.backends.cuda.matmul.allow_tf32 = wanted
    DTYPES[torch.float32] = 3 if wanted else 2  # as bench/peers/variants.cpp numbers them


def made(batch, len_q, len_k, heads, dim, dtype):
    make = lambda n: torch.randn(batch, n, heads, dim, device="cuda").to(dtype)  # noqa: E731
    t = {name: make(len_q) for name in ("q", "o", "d_o", "dq")} | {name: make(len_k) for name in ("k", "v", "dk", "dv")}
    return t | {"lse": torch.empty(batch, heads, len_q, device="cuda")}


def passes(attention, t):
    """Forward and backward of a differentiable attention, as two calls."""
    q, k, v = (t[name].transpose(1, 2).detach().requires_grad_() for name in "qkv")
    d_o, o = t["d_o"].transpose(1, 2), attention(q, k, v)
    return [lambda: attention(q.detach(), k.detach(), v.detach()), lambda: torch.autograd.grad(o, (q, k, v), d_o, retain_graph=True)]


def time(a, library):
    print(f"# {torch.cuda.get_device_name()} · PyTorch {torch.__version__} · 16 384 tokens, width 2048")
    print("| precision | dim | mask | len | who | forward ms | TFLOP/s | backward ms | TFLOP/s |\n|---|---|---|---|---|---|---|---|---|")
    cells = [(p, d, n, causal) for p in a.precisions.split(",") for d in a.dim for n in a.len for causal in (False, True)]
    for precision, dim, length, causal in cells:
        batch, heads = 16384 // length, 2048 // dim
        t = made(batch, length, length, heads, dim, PRECISIONS[precision])
        set_tf32(precision == "tf32")
        candidates = {}
        for variant in VARIANTS:
            try:
                candidates[variant] = both(library, variant, t, causal)
                candidates[variant][0]()
            except RuntimeError:
                candidates.pop(variant, None)
        for name, backend in {"naive": None, **PEERS}.items():

            def attention(q, k, v, backend=backend):
                if backend is None:
                    return naive(q, k, v, causal)
                with sdpa_kernel(backend):
                    return sdpa(q, k, v, is_causal=causal)

            try:
                candidates[f"PyTorch {name}"] = passes(attention, t)
            except RuntimeError:
                torch.cuda.empty_cache()
        ms = {who: ([], []) for who in candidates}
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for turn in range(a.rounds + 1):
            for who, calls in candidates.items():
                for call, times in zip(calls, ms[who]):
                    start.record()
                    call()
                    stop.record()
                    stop.synchronize()
                    if turn:
                        times.append(start.elapsed_time(stop))
        flops = 4 * batch * heads * length * length * dim / (2 if causal else 1)
        for who, times in ms.items():
            row = " | ".join(f"{statistics.median(x):.3f} | {f * flops / statistics.median(x) * 1e-9:.1f}" for x, f in zip(times, (1, 2.5)))
            print(f"| {precision} | {dim} | {'causal' if causal else 'full'} | {length} | {who} | {row} |", flush=True)
        del candidates, t
        torch.cuda.empty_cache()


def errors_of(a, library, dim, length):
    causal, len_q = not a.full, a.len_q or length
    print(f"# {torch.cuda.get_device_name()} · PyTorch {torch.__version__} · heads {a.heads}, len {len_q} x {length}, dim {dim}, {'causal' if causal else 'full'}, {a.seeds} seeds")
    print("| precision | who | " + " | ".join(f"{name}: max · rms · bias (noise)" for name in ("o", *GRADIENTS)) + " |\n|---|---|---|---|---|---|")
    for precision in a.precisions.split(","):
        dtype = PRECISIONS[precision]
        errors, sizes = {}, {}
        for seed in range(a.seeds):
            torch.manual_seed(seed)
            t = made(1, len_q, length, a.heads, dim, dtype)
            exact = through_autograd(lambda q, k, v: naive(q, k, v, causal), t, torch.float64)
            set_tf32(precision == "tf32")
            candidates = {variant: lambda v=variant: ours(library, v, t, causal) for variant in VARIANTS}
            candidates["PyTorch naive"] = lambda: through_autograd(lambda q, k, v: naive(q, k, v, causal), t, dtype)
            for name, backend in PEERS.items():
                candidates[f"PyTorch {name}"] = lambda b=backend: peer(b, t, causal, dtype)
            for who, run in candidates.items():
                try:
                    results = run()
                except RuntimeError:  # it does not serve this
                    continue
                for name, right in exact.items():
                    error = results[name].double() - right
                    errors.setdefault((who, name), []).append(torch.stack([error.flatten(), (error * right.sign()).flatten()]))
            for name, right in exact.items():
                sizes.setdefault(name, []).append(right.flatten())
            set_tf32(False)
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


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("library")
    numbers = lambda text: [int(x) for x in text.split(",")]  # noqa: E731
    options.add_argument("--dim", type=numbers, default=[64])
    options.add_argument("--len", type=numbers, default=[1024])
    options.add_argument("--len-q", type=int, default=0)
    options.add_argument("--heads", type=int, default=8)
    options.add_argument("--full", action="store_true", help="no causal mask")
    options.add_argument("--precisions", default="bf16,fp16,tf32,fp32")
    options.add_argument("--seeds", type=int, default=1, help="errors of so many random problems together")
    options.add_argument("--time", action="store_true", help="speed instead of errors")
    options.add_argument("--rounds", type=int, default=5)
    a = options.parse_args()
    library = c.CDLL(a.library)
    library.variant_error.restype = c.c_char_p
    if a.time:
        time(a, library)
    else:
        for dim in a.dim:
            for length in a.len:
                errors_of(a, library, dim, length)


if __name__ == "__main__":
    main()
