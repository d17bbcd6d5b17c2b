#!/usr/bin/env python3
"""Measures on one card what a forecast's times are made of. times.py measures the host's part, and steps of programs to hold them against.

    python3 bench/forecast/rates.py FOLDER [--seconds 75] [--only products,attention,bytes,copies]

Writes rates.csv (products, attention, kernels by bytes, copies: microseconds of one call). Calls are captured in a CUDA graph, so a gap of
the host is not in them.
"""
import argparse
import csv
import gc
import itertools
import math
import os
import random
import sys
import time
import traceback

import torch
import torch.nn.functional as F

BEGIN = time.perf_counter()
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16, "tf32": torch.float32, "fp32": torch.float32}
RATE = {"bf16": 6e14, "fp16": 6e14, "tf32": 3e14, "fp32": 4e13}  # only to choose how often a call is repeated


def spent():
    return time.perf_counter() - BEGIN


class Out:
    def __init__(self, folder):
        self.file = open(os.path.join(folder, "rates.csv"), "w", newline="")
        self.table = csv.writer(self.file)
        self.table.writerow("section name type layout batch m n k bytes us".split())

    def __call__(self, section, name, us, type="", layout="", batch=1, m=0, n=0, k=0, bytes=0):
        self.table.writerow([section, name, type, layout, batch, m, n, k, int(bytes), f"{us:.3f}"])
        self.file.flush()


def time_of(call, guess_us, most_ms=2.0):
    """Microseconds of one call, by a graph of many; by events alone where it cannot be captured."""
    n = int(max(1, min(50, most_ms * 1e3 / max(guess_us, 1.0))))
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    call()
    torch.cuda.synchronize()
    try:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(n):
                call()
        run = graph.replay
    except Exception:
        torch.cuda.synchronize()

        def run():
            for _ in range(n):
                call()
    run()
    best = math.inf
    for _ in range(2):
        begin.record()
        run()
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end) * 1e3 / n)
    return best


POOL, NEXT = {}, {}


def random_matrix(rows, columns, type):
    """A part of the pool that the call before did not have."""
    pool, n, at = POOL[type], rows * columns, NEXT.get(type, 0)
    at = 0 if at + n > len(pool) else at
    NEXT[type] = (at + n + 127) // 128 * 128
    return pool[at:at + n].view(rows, columns)


def product(out, section, tokens, inner, outer, type, layout, most_ms=1.5):
    """A linear layer's product: y = x·wᵀ (forward), dx = dy·w (data), dw = dyᵀ·x (weight); m, n, k as cuBLAS sees them, columns first."""
    torch.backends.cuda.matmul.allow_tf32 = type == "tf32"
    x, w, dy = random_matrix(tokens, inner, type), random_matrix(outer, inner, type), random_matrix(tokens, outer, type)
    a, b, (m, n, k) = {"forward": (x, w.t(), (outer, tokens, inner)), "data": (dy, w, (inner, tokens, outer)),
                       "weight": (dy.t(), x, (inner, outer, tokens))}[layout]
    y = torch.empty(n, m, device="cuda", dtype=TYPES[type])
    guess = 3 + 2 * m * n * k / RATE[type] * 1e6
    out(section, "product", time_of(lambda: torch.mm(a, b, out=y), guess, most_ms), type, layout, 1, m, n, k)


def products(out, until):
    for name, dtype in (("bf16", torch.bfloat16), ("fp16", torch.float16), ("fp32", torch.float32)):
        POOL[name] = torch.randn(1 << 29, device="cuda", dtype=torch.float32).to(dtype)
    POOL["tf32"] = POOL["fp32"]
    widths = [512, 768, 1024, 1280, 2048, 4096, 8192]
    shapes = [(w, f) for w in widths for f in (w, 3 * w, 4 * w)] + [(4 * w, w) for w in widths] + [(2048, 5632), (5632, 2048), (1024, 2816), (2816, 1024)]
    shapes += [(w, v) for w in (768, 1024, 2048, 4096) for v in (32000, 50304, 128256)] + [(1024, 256), (2048, 512), (4096, 1024)]
    cells = []
    for type, flops, keep in (("bf16", 1.2e12, 1), ("tf32", 5e11, 2), ("fp32", 6e10, 2), ("fp16", 5e11, 8)):
        found = [(type, t, i, o, l) for t in (128, 512, 1024, 2048, 4096, 8192, 16384) for i, o in shapes for l in ("forward", "data", "weight")
                 if 2.0 * t * i * o < flops and t * o < 1 << 28]
        cells += found[::keep] if keep > 2 else [c for n, c in enumerate(found) if (n * 7919) % keep == 0]
    r = random.Random(29)
    for _ in range(150):  # to hold an interpolation against: no multiples of anything
        t, i, o = (int(2 ** r.uniform(a, b)) // 8 * 8 for a, b in ((7, 14), (8, 13), (8, 14)))
        cells.append((r.choice(["bf16", "bf16", "tf32", "fp32"]), t, i, o, r.choice(["forward", "data", "weight"]), "random"))
    r.shuffle(cells)  # a machine without time measures some of everything
    cells.sort(key=lambda c: 0 if len(c) > 5 else 1 if c[0] != "fp16" else 2)
    for c in cells:
        if spent() > until:
            print("products: no time for all", file=sys.stderr)
            break
        if c[0] == "fp32" and 2.0 * c[1] * c[2] * c[3] > 6e10:
            continue
        product(out, "products_random" if len(c) > 5 else "products", c[1], c[2], c[3], c[0], c[4])
    for type in ("bf16", "tf32", "fp32"):  # for a third of a second: the clock under load
        for t, i, o in ((8192, 2048, 8192), (8192, 4096, 4096), (16384, 8192, 8192)):
            product(out, "sustained", t, i, o, type, "forward", 300)
    for type in ("bf16", "fp32"):
        for batch, length, dim in ((48, 512, 64), (64, 1024, 64), (16, 2048, 128), (192, 512, 64)):
            torch.backends.cuda.matmul.allow_tf32 = False
            q = torch.randn(batch, length, dim, device="cuda").to(TYPES[type])
            s = torch.randn(batch, length, length, device="cuda").to(TYPES[type])
            out("products", "product", time_of(lambda: torch.bmm(q, q.transpose(1, 2)), 20), type, "forward", batch, length, length, dim)
            out("products", "product", time_of(lambda: torch.bmm(s, q), 20), type, "data", batch, dim, length, length)
            out("products", "product", time_of(lambda: torch.bmm(s.transpose(1, 2), q), 20), type, "weight", batch, dim, length, length)
    POOL.clear()
    torch.backends.cuda.matmul.allow_tf32 = False


def attention(out, until):
    from torch.nn.attention import SDPBackend, sdpa_kernel
    shapes = [(8, 12, 12, 1024, 64), (4, 16, 16, 1024, 64), (16, 12, 12, 512, 64), (2, 32, 32, 2048, 64), (1, 32, 32, 4096, 128), (4, 16, 16, 2048, 128),
              (8, 16, 16, 256, 64), (2, 16, 16, 8192, 64), (1, 16, 16, 16384, 128), (4, 4, 4, 1024, 256), (4, 16, 4, 1024, 64), (2, 32, 8, 2048, 64), (3, 12, 12, 2048, 64),
              (1, 12, 12, 128, 64), (6, 20, 20, 512, 64), (2, 16, 16, 768, 64), (32, 12, 12, 512, 64)]
    for (b, h, kv, l, d), backend, type, causal in itertools.product(shapes, ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"), ("bf16", "fp32"), (True, False)):
        if spent() > until:
            print("attention: no time for all", file=sys.stderr)
            return
        if (type == "fp32" and (backend[0] != "E" or l > 4096)) or (not causal and (b * l) % 4096):
            continue
        if kv != h and backend[0] == "E":
            continue
        try:
            q, k, v = (torch.randn(b, n, l, d, device="cuda").to(TYPES[type]).requires_grad_() for n in (h, kv, kv))
            g = torch.randn(b, h, l, d, device="cuda").to(TYPES[type])
            guess = 4 * b * h * l * l * d / (2 if causal else 1) / (3e14 if type == "bf16" else 2e13) * 1e6 + 10
            with sdpa_kernel(getattr(SDPBackend, backend)):
                def forward():
                    return F.scaled_dot_product_attention(q, k, v, is_causal=causal, enable_gqa=kv != h)

                def both():
                    torch.autograd.grad(forward(), (q, k, v), g)
                one = time_of(lambda: forward().detach(), guess)
                two = time_of(both, guess * 3.5)
            name = backend.split("_")[0].lower() + ("" if causal else "_full")
            out("attention", name, one, type, "forward", b, h, kv, l, d)
            out("attention", name, two - one, type, "backward", b, h, kv, l, d)
        except Exception as e:
            print(f"attention {backend} {type} {(b, h, kv, l, d)}: {str(e)[:120]}", file=sys.stderr)


def by_bytes(out, until):
    def one(name, call, moved, type="", m=0, n=0):
        if spent() < until:
            out("bytes", name, time_of(call, 3 + moved / 3.5e6), type, "", 1, m, n, 0, moved)

    for mb in (0.0625, 0.25, 1, 4, 8, 16, 32, 64, 128, 256, 1024):
        for type in ("bf16", "fp32"):
            size = 2 if type == "bf16" else 4
            n = int(mb * (1 << 20)) // size
            x, y, z = (torch.randn(n, device="cuda").to(TYPES[type]) for _ in range(3))
            one("copy", lambda: y.copy_(x), 2 * n * size, type, n)
            one("add", lambda: torch.add(x, y, out=z), 3 * n * size, type, n)
            one("add_", lambda: x.add_(y), 3 * n * size, type, n)
            one("mul_scalar_", lambda: x.mul_(1.0), 2 * n * size, type, n)
            one("gelu", lambda: F.gelu(x), 2 * n * size, type, n)
            one("silu", lambda: F.silu(x), 2 * n * size, type, n)
            one("gelu_backward", lambda: torch.ops.aten.gelu_backward(x, y), 3 * n * size, type, n)
            one("silu_backward", lambda: torch.ops.aten.silu_backward(x, y), 3 * n * size, type, n)
            one("zero", lambda: z.zero_(), n * size, type, n)
            one("sum", lambda: x.sum(), n * size, type, n)
            other = torch.empty(n, device="cuda", dtype=torch.float32 if type == "bf16" else torch.bfloat16)
            one("cast", lambda: other.copy_(x), n * 6, type, n)
            if mb >= 1:
                r = x[:n // 64 * 64].view(-1, 16, 4, 16)
                one("transpose", lambda: r.transpose(1, 2).contiguous(), 2 * n * size, type, n)
                for width in (768, 2048):
                    rows = n // width
                    a, w = x[:rows * width].view(rows, width), torch.ones(width, device="cuda", dtype=TYPES[type])
                    one("layer_norm", lambda: F.layer_norm(a, (width,), w), 2 * rows * width * size, type, rows, width)
                    _, mean, rstd = torch.native_layer_norm(a, (width,), w, None, 1e-5)
                    one("layer_norm_backward", lambda: torch.ops.aten.native_layer_norm_backward(a, a, (width,), mean, rstd, w, None, [True, True, False]),
                        3 * rows * width * size, type, rows, width)
                    one("rms_norm", lambda: F.rms_norm(a, (width,), w, 1e-6), 2 * rows * width * size, type, rows, width)
                    one("mean_rows", lambda: a.mean(-1), rows * width * size, type, rows, width)
                    one("sum_columns", lambda: a.sum(0), rows * width * size, type, rows, width)
                for width in (512, 1024, 50304):
                    rows = n // width
                    if rows:
                        a = x[:rows * width].view(rows, width)
                        s = torch.softmax(a, -1)
                        one("softmax", lambda: torch.softmax(a, -1), 2 * rows * width * size, type, rows, width)
                        one("softmax_backward", lambda: torch.ops.aten._softmax_backward_data(s, s, -1, s.dtype), 3 * rows * width * size, type, rows, width)
    for rows, vocab in ((2048, 50304), (8192, 32000), (8192, 50304), (4096, 128256)):
        x, ids = torch.randn(rows, vocab, device="cuda", requires_grad=True), torch.randint(vocab, (rows,), device="cuda")
        one("cross_entropy", lambda: F.cross_entropy(x.detach(), ids), 2 * rows * vocab * 4, "fp32", rows, vocab)
        one("cross_entropy_both", lambda: torch.autograd.grad(F.cross_entropy(x, ids), x), 6 * rows * vocab * 4, "fp32", rows, vocab)
        for width in (768, 2048):
            w = torch.randn(vocab, width, device="cuda")
            g = torch.randn(rows, width, device="cuda")
            one("embedding", lambda: F.embedding(ids, w), 2 * rows * width * 4, "fp32", rows, width)
            one("embedding_backward", lambda: torch.ops.aten.embedding_dense_backward(g, ids, vocab, -1, False), vocab * width * 4 + 3 * rows * width * 4, "fp32", rows, vocab)
    for width, layers in ((256, 2), (768, 12), (2048, 8)):
        for how in ("fused", "foreach"):
            weights = [torch.randn(*s, device="cuda") for _ in range(layers) for s in ((3 * width, width), (width, width), (4 * width, width), (width, 4 * width), (width,), (width,))]
            for w in weights:
                w.grad = torch.randn_like(w)
            numbers = sum(w.numel() for w in weights)
            optimizer = torch.optim.AdamW(weights, lr=1e-4, capturable=True, **{how: True})
            one("adamw_" + how, optimizer.step, numbers * 28, "fp32", numbers, len(weights))
            grads = [w.grad for w in weights]
            one("foreach_norm", lambda: torch._foreach_norm(grads), numbers * 4, "fp32", numbers, len(weights))
            one("foreach_mul_", lambda: torch._foreach_mul_(grads, 1.0), numbers * 8, "fp32", numbers, len(weights))


def copies(out, _):
    for mb in (0.0625, 1, 16, 256):
        n = int(mb * (1 << 20))
        card, pinned, plain = torch.empty(n, dtype=torch.uint8, device="cuda"), torch.empty(n, dtype=torch.uint8).pin_memory(), torch.empty(n, dtype=torch.uint8)
        for name, to, source in (("to_device_pinned", card, pinned), ("to_host_pinned", pinned, card), ("to_device", card, plain), ("to_host", plain, card)):
            torch.cuda.synchronize()
            best = math.inf
            for _ in range(4):
                begin = time.perf_counter()
                to.copy_(source, non_blocking=True)
                torch.cuda.synchronize()
                best = min(best, time.perf_counter() - begin)
            out("copies", name, best * 1e6, bytes=n)


PARTS = {"products": (products, 0.6), "attention": (attention, 0.2), "bytes": (by_bytes, 0.2), "copies": (copies, 0)}  # with their shares of the time


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--seconds", type=float, default=75)
    p.add_argument("--only", default=",".join(PARTS))
    a = p.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    out = Out(a.folder)
    torch.cuda.init()
    for part in a.only.split(","):
        began, (measure, share) = spent(), PARTS[part]
        try:
            measure(out, began + a.seconds * share)
        except Exception:
            traceback.print_exc()
        gc.collect()
        torch.cuda.empty_cache()
        print(f"{part}: {spent() - began:.1f} s", flush=True)


if __name__ == "__main__":
    main()
