#!/usr/bin/env python3
"""GPT-2's training step by llm.c and by headroom, in turns on one card: the same shapes, vocabulary 50 304, AdamW, bf16.

    python3 bench/peers/llm_c.py TRAIN_GPT2CU [--headroom build/release/headroom] [--sizes 12:4,12:32,36:4] [--rounds 3] [--steps 20] [--out FILE]

TRAIN_GPT2CU is llm.c's program (github.com/karpathy/llm.c), built with `make train_gpt2cu USE_CUDNN=1`. It starts from random weights (`-e dLAYERS`)
and reads random tokens, which this script writes. A size is layers:batch; lengths are 1024. Both take steps that do not count first; of a round the
median step counts, of several rounds the median round. llm.c clips by the global norm, recomputes GELU, and keeps FP32 weights beside bf16 ones: its
defaults. Ours has two rows: FP32 gradients and weights beside bf16 ones; and bf16 gradients, FP32 weights that share the bytes. Both clip, both keep GELU.
"""
import argparse
import json
import os
import random
import re
import statistics
import subprocess
import tempfile
from array import array

WIDTHS = {12: 768, 24: 1024, 36: 1280, 48: 1600}  # GPT-2's sizes: layers and width; heads of 64
OURS = {"headroom": "--logits half", "headroom, half gradients": "--logits half --masters halves --gradients half"}


def tokens(path, count):
    """A file of tokens as llm.c reads it: a head of 256 words, then 16 bits a token."""
    r = random.Random(0)
    with open(path, "wb") as f:
        array("i", [20240520, 1, count] + [0] * 253).tofile(f)
        array("H", (r.randrange(50257) for _ in range(count))).tofile(f)


def config(path, layers):
    with open(path, "w") as f:
        json.dump({"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": 50304, "n_positions": 1024, "n_ctx": 1024,
                   "n_embd": WIDTHS[layers], "n_layer": layers, "n_head": WIDTHS[layers] // 64, "n_inner": None,
                   "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}, f)


def llm_c(a, folder, layers, batch):
    out = subprocess.run([a.program, "-i", "tokens.bin", "-j", "tokens.bin", "-e", f"d{layers}", "-b", str(batch), "-t", "1024",
                          "-d", str(batch * 1024), "-x", str(a.warmup + a.steps), "-v", "1000000", "-m", "1", "-s", "0", "-h", "0"],
                         capture_output=True, text=True, cwd=folder)
    times = [float(ms) for ms in re.findall(r"\| *([0-9.]+) ms \|", out.stdout)][a.warmup:]
    if out.returncode or not times:
        return None, f"ended with {out.returncode}: {(out.stderr.strip() or out.stdout.strip())[-300:]}"
    return statistics.median(times), None


def headroom(a, folder, layers, batch, more):
    out = subprocess.run([a.headroom, "step", "--device", a.device, "--model", os.path.join(folder, f"gpt2_{layers}.json"), "--len", "1024",
                          "--batch", str(batch), "--precision", "bf16", "--phase", "train", "--warmup", str(a.warmup), "--steps", str(a.steps),
                          "--format", "json", *more.split()], capture_output=True, text=True)
    if out.returncode:
        return None, out.stderr.strip()
    row = json.loads(out.stdout)["rows"][0]
    return (row["ms"], row["peak_bytes"]) if row["status"] == "ok" else (None, row["why"])


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("program")
    p.add_argument("--headroom", default="build/release/headroom")
    p.add_argument("--device", default="cuda")
    p.add_argument("--sizes", default="12:4,12:32,36:4")
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=10)
    p.add_argument("--out", help="a JSON file of all rounds")
    a = p.parse_args()
    a.program, a.headroom = os.path.abspath(a.program), os.path.abspath(a.headroom)
    for path in a.program, a.headroom:
        if not os.access(path, os.X_OK):
            p.error(f"{path} is not a program; llm.c's is built by `make train_gpt2cu USE_CUDNN=1`, ours by `make build`")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        try:
            sizes = [tuple(map(int, size.split(":"))) for size in a.sizes.split(",")]
            if any(len(size) != 2 or size[0] not in WIDTHS or size[1] < 1 for size in sizes):
                raise ValueError
        except ValueError:
            p.error(f"--sizes '{a.sizes}' is not layers:batch,…, with layers of {', '.join(map(str, WIDTHS))}")
        tokens(os.path.join(folder, "tokens.bin"), 1024 * max(batch for _, batch in sizes) * (a.warmup + a.steps + 2))
        for layers, batch in sizes:
            config(os.path.join(folder, f"gpt2_{layers}.json"), layers)
            seen = {}
            for _ in range(a.rounds):
                seen.setdefault("llm.c", []).append(llm_c(a, folder, layers, batch))
                for who, more in OURS.items():
                    seen.setdefault(who, []).append(headroom(a, folder, layers, batch, more))
            theirs = [ms for ms, _ in seen["llm.c"] if ms is not None]
            for who, rounds in seen.items():
                good = [ms for ms, _ in rounds if ms is not None]
                ms = statistics.median(good) if good else None
                why = "" if good else str(rounds[0][1])
                ratio = statistics.median(theirs) / ms if ms and theirs else None
                rows.append({"layers": layers, "batch": batch, "who": who, "ms": ms, "rounds_ms": [m for m, _ in rounds], "over_llm_c": ratio, "why": why})
                print(f"{layers:2} layers, batch {batch:2}  {who:26}" + (f"{ms:9.2f} ms" if ms else f"  {why}") +
                      (f"  {ratio:.2f} x the speed of llm.c" if ratio else ""), flush=True)
            if a.out:
                with open(a.out, "w") as f:
                    json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
