#!/usr/bin/env python3
"""The same model's training step in PyTorch on the CPU: RMSNorm, RoPE, causal attention, SwiGLU, untied head, AdamW, clipping.

Prints milliseconds of a step (mean, std) and the process's peak resident bytes above those before the model was made. With --headroom, ours
and PyTorch's take turns, --rounds of them, and the medians of the rounds are compared.
    python3 bench/peers/cpu_step.py [--width 256 --layers 4 --heads 4 --ffn 1024 --vocab 10000 --len 256 --batch 4]
                                    [--threads 2] [--warmup 3] [--steps 10] [--headroom build/release/headroom --rounds 3] [--cells FILE.csv]
"""
import argparse
import json
import resource
import statistics
import subprocess
import time

import torch
from torch import nn

from cells import Cells
from language_model import Model


class NormByHand(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def ours(a):
    shape = [word for name in ("width", "layers", "heads", "ffn", "vocab", "len", "batch", "threads", "warmup", "steps") for word in (f"--{name}", str(getattr(a, name)))]
    out = subprocess.run([a.headroom, "step", "--device", "cpu", "--phase", "train", "--format", "json", *shape], capture_output=True, text=True, check=True)
    return json.loads(out.stdout)["rows"][0]["ms"]


def main():
    p = argparse.ArgumentParser()
    sizes = dict(width=256, layers=4, heads=4, ffn=1024, vocab=10000, len=256, batch=4, threads=2, warmup=3, steps=10, rounds=1)
    for name, value in sizes.items():
        p.add_argument("--" + name, type=int, default=value)
    p.add_argument("--headroom", help="the program that takes turns")
    p.add_argument("--cells", help="a file for headroom bench (cells.py)")
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    torch.manual_seed(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    model = Model(a.width, a.ffn, a.layers, a.heads, a.len, a.vocab, NormByHand)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    tokens, targets = torch.randint(a.vocab, (2, a.batch, a.len))

    def step_ms():
        start = time.perf_counter()
        model(tokens, targets).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return 1e3 * (time.perf_counter() - start)

    times, rounds = [], {"torch": [], "headroom": []}
    for _ in range(a.rounds):
        of_round = [step_ms() for _ in range(a.warmup + a.steps)][a.warmup:]
        times += of_round
        rounds["torch"].append(statistics.mean(of_round))
        if a.headroom:
            time.sleep(0.3)  # PyTorch's threads spin for a while after their work
            rounds["headroom"].append(ours(a))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    print(f"torch {torch.__version__} threads {a.threads} params {sum(t.numel() for t in model.parameters())} "
          f"step_ms {statistics.mean(times):.1f} std {statistics.stdev(times):.1f} peak_bytes {peak}")
    if a.headroom:
        theirs, mine = (statistics.median(rounds[who]) for who in ("torch", "headroom"))
        print(f"headroom step_ms {mine:.1f}: {theirs / mine:.2f} x the speed of torch eager")
        Cells(a.cells).add(f"train fp32 width {a.width} layers {a.layers} {a.batch} x {a.len}", "torch eager", mine, theirs)


if __name__ == "__main__":
    main()
