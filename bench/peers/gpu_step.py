#!/usr/bin/env python3
"""A language model's training step on one GPU: PyTorch eager, torch.compile and headroom, in turns on one card, and their ratios.

Modes: eager; compile, as torch.compile is by default; graphs, torch.compile(mode="reduce-overhead"), which replays CUDA graphs, with cuDNN's attention.

The model is the same: RMSNorm, rotary positions, causal attention, SwiGLU, untied head, vocabulary 10 000, AdamW (fused) on FP32
weights, autocast to bf16, no clipping in PyTorch (headroom's step clips by the global norm). PyTorch's peak is
torch.cuda.max_memory_allocated of a step; headroom's is its arena's, forecast and ledger being equal. Times are means of a round's steps
after three that do not count; of several rounds the median counts. A model of PyTorch's is compiled in a process of its own, which keeps
its weights and moments on the card between the rounds. It leaves the card before ours begins where there is one round, or where it keeps more than a
quarter of the card (the pools of CUDA graphs); its next round then begins anew, from inductor's cache. Bytes of graphs are what the process reserved.

    python3 bench/peers/gpu_step.py [--headroom build/release/headroom] [--models small,large,2.7B] [--len 1024] [--batch 4]
                                    [--modes eager,compile,graphs] [--rounds 2] [--steps 10] [--ahead SECONDS] [--out FILE] [--cells FILE.csv]
    python3 bench/peers/gpu_step.py --only-compile     # measures nothing; a later run compiles from inductor's cache
"""
import argparse
import ctypes
import json
import multiprocessing
import signal
import statistics
import subprocess
import time

import torch

from cells import Cells
from language_model import preset_model
from presets import VOCAB

WORDS = {"eager": "eager", "compile": "compile", "graphs": "compile, CUDA graphs"}


def steps_of(model, run, tokens, targets, autocast=True):
    """A training step: run is the model as it is called. And a function that takes several and waits for them."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step():
        with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
            loss = run(tokens, targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def warm(times):
        for _ in range(times):
            step()
        torch.cuda.synchronize()

    return step, warm


def serve(preset, mode, a, pipe):
    """A model of PyTorch's: says when it is ready, then times a round whenever it is asked."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: whoever ends the script ends its models, and the card is free
    try:
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = preset_model(preset, a.len)
            tokens, targets = torch.randint(VOCAB, (2, a.batch, a.len))
        if mode == "graphs":
            for other in ("flash", "mem_efficient", "math"):
                getattr(torch.backends.cuda, f"enable_{other}_sdp")(False)
        run = {"eager": lambda m: m, "compile": torch.compile, "graphs": lambda m: torch.compile(m, mode="reduce-overhead")}[mode](model)
        step, warm = steps_of(model, run, tokens, targets)
        begin = time.monotonic()
        warm(2)
        torch.cuda.empty_cache()
        pipe.send(f"ready after {time.monotonic() - begin:.0f} s")
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        while pipe.recv() == "round":
            warm(3)
            torch.cuda.reset_peak_memory_stats()
            times = []
            for _ in range(a.steps):
                start.record()
                step()
                stop.record()
                stop.synchronize()
                times.append(start.elapsed_time(stop))
            peak = torch.cuda.max_memory_reserved() if mode == "graphs" else torch.cuda.max_memory_allocated()
            torch.cuda.empty_cache()
            stays = torch.cuda.memory_reserved() <= torch.cuda.mem_get_info()[1] / 4
            pipe.send((statistics.mean(times), peak, stays))
            if not stays:
                return
    except Exception as e:  # whatever it was, it becomes the row's words
        pipe.send((None, str(e).splitlines()[0][:200]))


class Peer:
    """A model of PyTorch's in a process that begins when it is first needed, and again after it had to leave the card."""

    def __init__(self, *what):
        self.what, self.process = what, None

    def begin(self):
        self.words = None
        self.pipe, theirs = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=serve, args=(*self.what, theirs))
        self.process.start()
        theirs.close()

    def hear(self):
        try:
            return self.pipe.recv()
        except EOFError:
            return None, "PyTorch's process ended"

    def ready(self, seconds=None):
        if self.process is None:
            self.begin()
        if self.words is None and self.pipe.poll(seconds):
            self.words = self.hear()
        return self.words

    def round(self):
        if isinstance(self.ready(), str):
            self.pipe.send("round")
            self.words = self.hear()
            if self.words[0] is not None:
                ms, peak, stays = self.words
                self.words = "ready"
                if not stays:
                    self.end()
                return ms, peak
        return self.words

    def end(self):
        if self.process is not None:
            self.process.terminate()
            self.process.join()
            self.process = None


def headroom(preset, a, more):
    out = subprocess.run([a.headroom, "step", "--device", "cuda", "--model", preset, "--len", str(a.len), "--batch", str(a.batch),
                          "--precision", "bf16", "--phase", "train", "--warmup", "3", "--steps", str(a.steps), "--format", "json", *more],
                         capture_output=True, text=True)
    if out.returncode:
        return None, out.stderr.strip()
    row = json.loads(out.stdout)["rows"][0]
    return (row["ms"], row["peak_bytes"]) if row["status"] == "ok" else (None, row["why"])


def median_of(rounds):
    good = [r for r in rounds if r[0] is not None]
    return (statistics.median(r[0] for r in good), max(r[1] for r in good)) if good else None


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--headroom", default="build/release/headroom")
    p.add_argument("--models", default="small,large,2.7B")
    p.add_argument("--modes", default="eager,compile")
    p.add_argument("--len", type=int, default=1024)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--rounds", type=int, default=2, help="times each is measured, in turn; the median round counts")
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--ours", action="append", help="options of headroom step for one more row, as one word; may be repeated")
    p.add_argument("--gradients", help="half, none, or both: short for --ours '--masters halves --update during --gradients X'")
    p.add_argument("--ahead", type=float, default=0,
                   help="compile all models beside one another, waiting so many seconds at most before anything is timed")
    p.add_argument("--only-compile", action="store_true", help="one step of each model beside one another, whose compiled code stays on the disk")
    p.add_argument("--out")
    p.add_argument("--cells", help="a file for headroom bench (cells.py)")
    a = p.parse_args()
    for mode in a.modes.split(","):
        if mode not in WORDS:
            p.error(f"--modes: there is no '{mode}'; choose from {', '.join(WORDS)}")
    multiprocessing.set_start_method("spawn")
    ours = [""] + (a.ours or []) + [f"--masters halves --update during --gradients {x}" for x in (a.gradients or "").split(",") if x]
    print(f"torch {torch.__version__}, {torch.cuda.get_device_name()}, batch {a.batch}, len {a.len}, bf16", flush=True)
    mode_of_peer = a.modes.split(",")[-1]  # the one that ratios are against
    peer = f"torch {WORDS[mode_of_peer]}"
    rows, cells = [], Cells(a.cells)

    def peers_of(preset):
        return {f"torch {WORDS[mode]}": Peer(preset, mode, a) for mode in a.modes.split(",")}

    ahead = {preset: peers_of(preset) for preset in a.models.split(",")} if a.ahead or a.only_compile else {}
    until = time.monotonic() + (a.ahead or 3600)
    for one in [one for peers in ahead.values() for one in peers.values()]:
        one.begin()
    for preset, peers in ahead.items():
        for who, one in peers.items():
            print(f"{preset:6} {who}: {one.ready(max(0, until - time.monotonic())) or 'still compiling'}", flush=True)
    if a.only_compile:
        return [one.end() for peers in ahead.values() for one in peers.values()]
    for preset in a.models.split(","):
        peers = ahead.get(preset) or peers_of(preset)
        seen = {}
        for _ in range(a.rounds):
            for who, one in peers.items():
                seen.setdefault(who, []).append(one.round())
                if a.rounds == 1:
                    one.end()
            for more in ours:
                seen.setdefault(f"headroom {more}".strip(), []).append(headroom(preset, a, more.split()))
        for one in peers.values():
            one.end()
        base = median_of(seen[peer])
        for more in ours:
            row = f"headroom {more}".strip()
            for who in peers:
                mine, theirs = median_of(seen[row]), median_of(seen[who])
                why = "" if mine and theirs else str((seen[row] if theirs else seen[who])[0][1])
                cells.add(f"train bf16 {preset} {a.batch} x {a.len} {more}".strip(), who, mine and mine[0], theirs and theirs[0], why)
        for who, results in seen.items():
            measured = median_of(results)
            if not measured:
                print(f"{preset:6} {who:40} {results[0][1]}", flush=True)
                continue
            ms, peak = measured
            ratio = (base[0] / ms, peak / base[1]) if base else (None, None)
            rows.append({"model": preset, "who": who, "ms": ms, "peak_bytes": peak, f"speed_over_{mode_of_peer}": ratio[0],
                         f"bytes_over_{mode_of_peer}": ratio[1], "torch": torch.__version__, "device": torch.cuda.get_device_name(),
                         "batch": a.batch, "len": a.len, "all_ms": [r[0] for r in results]})
            words = f"{ratio[0]:.3f} x the speed of {peer}, {ratio[1]:.3f} of its bytes" if base else ""
            print(f"{preset:6} {who:40} {ms:9.2f} ms {peak / 1e6:9.0f} MB  {words}", flush=True)
        if a.out:  # after every model, so that an end before the last loses only what was not run
            with open(a.out, "w") as f:
                json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
