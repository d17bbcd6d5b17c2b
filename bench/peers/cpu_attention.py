#!/usr/bin/env python3
"""PyTorch's CPU attention and ours, in turn, cell by cell: the ratio is what counts.

    cmake --build build/cpu-only --target attention_cpu_time
    python3 bench/peers/cpu_attention.py [--build build/cpu-only] [--dims 16,32,64,128] [--lens 256,1024] [--masks full,causal] [--seconds 1]

Needs a Python that has torch (never a build dependency). PyTorch is tried as scaled_dot_product_attention with its own flash kernel and
as the naive attention written with matmul and softmax; the faster of the two is the peer. Both sides use the same number of threads and
FP32; each round times a few calls of everyone in turn, the least time of a cell's rounds is kept. Between turns the machine rests, because
PyTorch's threads spin for a while after their work and would take a core from us. PyTorch gets contiguous [batch, heads, len, dim]
tensors, which it likes best; ours are [batch, len, heads, dim]. A ratio above 1: we are faster. --processor: on a machine that others use, with
--threads 1: the processor's time instead of the time that passes, the median of the rounds instead of the least.
"""
import argparse
import math
import statistics
import subprocess
import sys
import time

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel

from cells import Cells


def arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words = lambda convert: lambda text: [convert(word) for word in text.split(",")]
    parser.add_argument("--build", default="build/cpu-only")
    parser.add_argument("--program", help="attention_cpu_time, where it is not in --build")
    parser.add_argument("--cells", help="a file for headroom bench (cells.py)")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--dims", type=words(int), default=[16, 32, 64, 128])
    parser.add_argument("--lens", type=words(int), default=[256, 512, 1024, 2048, 4096, 8192])
    parser.add_argument("--masks", type=words(str), default=["full", "causal"])
    parser.add_argument("--heads", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=8192, help="batch × len; batch is at least 1")
    parser.add_argument("--seconds", type=float, default=1, help="for each cell, at least three rounds")
    parser.add_argument("--processor", action="store_true")
    return parser.parse_args()


class Ours:
    def __init__(self, program, threads, processor):
        self.program = subprocess.Popen([program, str(threads), "processor" if processor else "passing"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line):
        self.program.stdin.write(line + "\n")
        self.program.stdin.flush()
        return [float(word) for word in self.program.stdout.readline().split()]


def naive(q, k, v, causal):
    s = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if causal:
        s = s.masked_fill(torch.ones(s.shape[-2:], dtype=torch.bool).triu(1), float("-inf"))
    return torch.softmax(s, -1) @ v


def fused(q, k, v, causal):
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION):
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)


clock = time.perf_counter


def times(attend, tensors, gradient, causal, calls):
    return [min(column) for column in zip(*(one_call(attend, tensors, gradient, causal) for _ in range(calls)))]


def one_call(attend, tensors, gradient, causal):
    start = clock()
    out = attend(*tensors, causal)
    middle = clock()
    torch.autograd.grad(out, tensors, gradient)
    return [1e3 * (middle - start), 1e3 * (clock() - middle)]


def main():
    global clock
    args = arguments()
    if args.processor:
        clock = time.process_time
    torch.set_num_threads(args.threads)
    ours = Ours(args.program or f"{args.build}/bench/attention_cpu_time", args.threads, args.processor)
    cells = Cells(args.cells)
    ceiling = ours.ask("matmul 1024 20")[0]
    print(f"PyTorch {torch.__version__}, {args.threads} threads, FP32, {args.heads} heads, batch x len {args.tokens}; matmul 1024: {ceiling:.0f} GFLOP/s here")
    print("| dim | mask | len | batch | forward ms | PyTorch | ratio | GFLOP/s | backward ms | PyTorch | ratio | GFLOP/s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for dim in args.dims:
        for mask in args.masks:
            for length in args.lens:
                batch = max(1, args.tokens // length)
                shape = (batch, args.heads, length, dim)
                tensors = [torch.randn(shape, requires_grad=True) for _ in range(3)]
                gradient = torch.randn(shape)
                calls = 3 if length <= 2048 else 1
                rounds_of = {}
                begin = time.perf_counter()
                while len(rounds_of.get("ours", [])) < 3 or time.perf_counter() - begin < args.seconds:
                    time.sleep(0.03)
                    run = {"ours": ours.ask(f"flash fp32 {mask} {batch} {args.heads} {dim} {length} {calls}")}
                    run |= {f.__name__: times(f, tensors, gradient, mask == "causal", calls) for f in (fused, naive)}
                    for name, pair in run.items():
                        rounds_of.setdefault(name, []).append(pair)
                least = {name: [(statistics.median if args.processor else min)(column) for column in zip(*pairs)] for name, pairs in rounds_of.items()}
                pairs = length * (length + 1) / 2 if mask == "causal" else length * length
                flops = 4e-6 * batch * args.heads * dim * pairs
                row = f"| {dim} | {mask} | {length} | {batch} |"
                for which, factor in ((0, 1.0), (1, 2.5)):
                    peer = min(least["fused"][which], least["naive"][which])
                    who = "flash" if peer == least["fused"][which] else "naive"
                    mine = least["ours"][which]
                    for name, theirs in (("flash", least["fused"][which]), ("naive", least["naive"][which])):
                        cell = f"{('forward', 'backward')[which]} fp32 dim {dim} {mask} len {length}"
                        cells.add(cell, f"PyTorch's {name}", mine, theirs)
                    row += f" {mine:.2f} | {peer:.2f} {who} | {peer / mine:.2f} | {factor * flops / mine:.0f} |"
                print(row, flush=True)
                del tensors, gradient


if __name__ == "__main__":
    sys.exit(main())
