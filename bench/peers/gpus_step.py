#!/usr/bin/env python3
"""A language model's training step on several GPUs of one host: PyTorch's DDP and FSDP2, both with torch.compile, and headroom,
in turns in one run, and their ratios.

The model, its data and its optimiser are those of gpu_step.py. A rank of PyTorch's is a process of its own, compiled once; its
step is timed by CUDA events, and a round's time is the slowest rank's mean. headroom runs `headroom step --gpus N`; its row is the
slowest rank's too. Every row is the median of the rounds.

    python3 bench/peers/gpus_step.py [--headroom build/release/headroom] [--models small,large,2.7B] [--gpus 2] [--batch 4] [--len 1024]
                                     [--modes ddp,fsdp] [--rounds 2] [--steps 10] [--ours OPTIONS]... [--out FILE]
"""
import argparse
import json
import multiprocessing
import os
import socket

import torch
import torch.distributed as dist

import gpu_step
from gpu_step import median_of, steps_of
from language_model import preset_model
from presets import VOCAB


def sharded(model):
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for block in model.blocks:
        fully_shard(block, mp_policy=policy)
    fully_shard(model, mp_policy=policy)
    return model


def serve(rank, port, preset, mode, a, pipe):
    """One rank: says when it is ready, then times a round whenever it is asked."""
    try:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        torch.cuda.set_device(rank)
        dist.init_process_group("nccl", rank=rank, world_size=a.gpus, device_id=torch.device("cuda", rank))
        torch.manual_seed(0)
        with torch.device("cuda"):
            model = preset_model(preset, a.len)
        if mode == "fsdp":
            model = torch.compile(sharded(model))
        else:
            model = torch.compile(torch.nn.parallel.DistributedDataParallel(model, device_ids=[rank], gradient_as_bucket_view=True))
        torch.manual_seed(1 + rank)
        tokens, targets = torch.randint(VOCAB, (2, a.batch, a.len), device="cuda")
        step, warm = steps_of(model, model, tokens, targets, autocast=mode == "ddp")
        warm(3)
        torch.cuda.empty_cache()
        pipe.send("ready")
        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        while pipe.recv() == "round":
            warm(3)
            torch.cuda.reset_peak_memory_stats()
            start.record()
            for _ in range(a.steps):
                step()
            stop.record()
            stop.synchronize()
            peak = torch.cuda.max_memory_allocated()
            torch.cuda.empty_cache()
            pipe.send((start.elapsed_time(stop) / a.steps, peak))
    except Exception as e:  # whatever it was, it becomes the row's words
        pipe.send((None, f"rank {rank}: {str(e).splitlines()[0][:200]}"))


class Peers:  # the ranks of one mode
    def __init__(self, preset, mode, a):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        self.pipes, self.processes = [], []
        for rank in range(a.gpus):
            pipe, theirs = multiprocessing.Pipe()
            process = multiprocessing.Process(target=serve, args=(rank, port, preset, mode, a, theirs))
            process.start()
            theirs.close()
            self.pipes.append(pipe)
            self.processes.append(process)
        self.words = [self.hear(p) for p in self.pipes]

    @staticmethod
    def hear(pipe):
        try:
            return pipe.recv()
        except EOFError:
            return None, "a rank of PyTorch's ended"

    def round(self):
        failed = [w for w in self.words if w != "ready"]
        if failed:
            return failed[0]
        for pipe in self.pipes:
            pipe.send("round")
        results = [self.hear(p) for p in self.pipes]
        failed = [r for r in results if r[0] is None]
        return failed[0] if failed else (max(r[0] for r in results), max(r[1] for r in results))

    def end(self):
        for process in self.processes:
            process.terminate()
            process.join()


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--headroom", default="build/release/headroom")
    p.add_argument("--models", default="small,large,2.7B")
    p.add_argument("--modes", default="ddp,fsdp")
    p.add_argument("--gpus", type=int, default=2)
    p.add_argument("--len", type=int, default=1024)
    p.add_argument("--batch", type=int, default=4, help="sequences of each GPU")
    p.add_argument("--rounds", type=int, default=2)
    p.add_argument("--steps", type=int, default=10)
    p.add_argument("--ours", action="append", help="options of headroom step for one more row, as one word; may be repeated")
    p.add_argument("--out")
    a = p.parse_args()
    multiprocessing.set_start_method("spawn")
    ours = a.ours or [f"--gpus {a.gpus}", "--gpus 1"]
    name = torch.cuda.get_device_name()
    print(f"torch {torch.__version__}, {a.gpus} x {name}, batch {a.batch} a GPU, len {a.len}, bf16", flush=True)
    rows = []
    for preset in a.models.split(","):
        peers = {f"torch {mode} + compile": Peers(preset, mode, a) for mode in a.modes.split(",") if mode}
        seen = {}
        for _ in range(a.rounds):
            for who, one in peers.items():
                seen.setdefault(who, []).append(one.round())
            for more in ours:
                seen.setdefault(f"headroom {more}", []).append(gpu_step.headroom(preset, a, more.split()))
        for one in peers.values():
            one.end()
        measured = {who: median_of(results) for who, results in seen.items()}
        best = min((m[0] for who, m in measured.items() if m and who.startswith("torch")), default=None)
        for who, results in seen.items():
            if not measured[who]:
                print(f"{preset:6} {who:60} {results[0][1]}", flush=True)
                continue
            ms, peak = measured[who]
            ratio = best / ms if best else None
            rows.append({"model": preset, "who": who, "ms": ms, "peak_bytes": peak, "speed_over_best_peer": ratio, "gpus": a.gpus,
                         "torch": torch.__version__, "device": name, "batch": a.batch, "len": a.len, "all_ms": [r[0] for r in results]})
            words = f"{ratio:.3f} x the best peer" if ratio else ""
            print(f"{preset:6} {who:60} {ms:9.2f} ms {peak / 1e9:7.2f} GB  {words}", flush=True)
        if a.out:  # after every model, so that an end before the last loses only what was not run
            with open(a.out, "w") as f:
                json.dump(rows, f, indent=1)


if __name__ == "__main__":
    main()
