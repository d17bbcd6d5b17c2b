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
import torch.nn.functional as F
from torch import nn

from cells import Cells


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * self.weight


def turned(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Block(nn.Module):
    def __init__(self, width, heads, ffn):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.gate_up, self.down = nn.Linear(width, 2 * ffn, bias=False), nn.Linear(ffn, width, bias=False)

    def forward(self, x, cos, sin):
        b, n, w = x.shape
        q, k, v = (t.view(b, n, self.heads, -1).transpose(1, 2) for t in self.qkv(self.norm1(x)).chunk(3, -1))
        o = F.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v, is_causal=True)
        x = x + self.out(o.transpose(1, 2).reshape(b, n, w))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


class Model(nn.Module):
    def __init__(self, a):
        super().__init__()
        self.embedding = nn.Embedding(a.vocab, a.width)
        self.blocks = nn.ModuleList(Block(a.width, a.heads, a.ffn) for _ in range(a.layers))
        self.norm, self.head = Norm(a.width), nn.Linear(a.width, a.vocab, bias=False)
        half = a.width // a.heads // 2
        angle = torch.arange(a.len)[:, None] * 10000.0 ** (-torch.arange(half) / half)
        self.cos, self.sin = angle.cos(), angle.sin()

    def forward(self, tokens):
        x = self.embedding(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


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
    model = Model(a)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.95), weight_decay=0.1)
    tokens, targets = torch.randint(a.vocab, (2, a.batch, a.len))

    def step_ms():
        start = time.perf_counter()
        loss = F.cross_entropy(model(tokens).flatten(0, 1), targets.flatten())
        loss.backward()
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
