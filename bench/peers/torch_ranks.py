"""Data parallelism of gpu_headroom.torch.dist beside torch's own, in turns in one group of processes.

    python bench/peers/torch_ranks.py [--ranks 2] [--width 512] [--layers 8]     # a step on the CPU's ranks, beside DDP over gloo
    python bench/peers/torch_ranks.py --cards bandwidth [--gpus auto,nccl] [--staging 512]    # every collective, beside torch's over NCCL
    python bench/peers/torch_ranks.py --cards large:ddp,large:fsdp,2.7B:fsdp     # training steps of gpu_step.py's models, blocks compiled

Of CPU steps: median milliseconds of a forward and a backward pass on rank 0, those above the same passes without communication, and their
share; other programs on the machine disturb it. Of collectives: the slowest rank's median of calls one after another, and bytes a rank sends
per second. Of training steps (bf16, AdamW on FP32 weights): the slowest rank's mean of a round, and the median of the rounds. torch's DDP has
its gradients in buckets' views, its FSDP2 shards each block and reduces in bf16. --out FILE keeps the rows as JSON.
PYTHONPATH=python and HEADROOM_LIBRARY, or an installed wheel.
"""

import argparse
import contextlib
import gc
import json
import os
import statistics
import time

import torch
import torch.distributed
import torch.multiprocessing
from torch import nn

import gpu_headroom.torch.dist as hd

WAYS = ("alone", "headroom per parameter", "headroom flat", "headroom bucketed", "headroom fully sharded", "torch DDP, gloo")


def made(way, net, comm):
    if way == "alone":
        return net
    if way.startswith("torch"):
        return nn.parallel.DistributedDataParallel(net)
    if way.endswith("sharded"):
        return hd.FullyShardedDataParallel(net, comm)
    return hd.DistributedDataParallel(net, comm, way.partition(" ")[2])


def table(title, ways, ms, also=()):
    """Rows of medians, beside the way that does not communicate."""
    print(title)
    alone = ms.get("alone")
    print(f"{'way':34}{'ms a step':>12}" + (f"{'over alone':>12}{'share':>8}" if alone else "") + "".join(f"{head:>14}" for head, _ in also))
    for way in ways:
        share = f"{ms[way] - alone:12.1f}{max(0.0, 1 - alone / ms[way]):8.0%}" if alone else ""
        print(f"{way:34}{ms[way]:12.1f}{share}" + "".join(f"{of[way]:>14}" for _, of in also), flush=True)


def on_cpu(rank, asked, port):
    torch.set_num_threads(asked.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=asked.ranks)
    comm = hd.join()
    models = {}
    for way in WAYS:
        torch.manual_seed(0)
        net = nn.Sequential(*(m for _ in range(asked.layers) for m in (nn.Linear(asked.width, asked.width), nn.GELU())))
        models[way] = made(way, net, comm)
    x = torch.randn(asked.batch or 64, asked.width)
    times = {way: [] for way in WAYS}
    for turn in range(asked.turns + 1):
        for way in WAYS:
            comm.barrier()
            begun = time.perf_counter()
            models[way](x).square().sum().backward()
            if turn:
                times[way].append((time.perf_counter() - begun) * 1e3)
            models[way].zero_grad()
    if rank == 0:
        parameters = sum(p.numel() for p in models["alone"].parameters())
        title = f"{asked.ranks} ranks, {asked.threads} threads each, {parameters / 1e6:.1f} M parameters, batch {len(x)}, torch {torch.__version__}"
        table(title, WAYS, {way: statistics.median(t) for way, t in times.items()})
    comm.close()
    torch.distributed.destroy_process_group()


# ---- on GPUs


def slowest(comm, ms):
    return comm.all_gather(torch.tensor([float(ms)])).max().item()


@contextlib.contextmanager
def on_card(rank, asked, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=asked.ranks, device_id=torch.device("cuda", rank))
    yield
    torch.distributed.destroy_process_group()


def keep(asked, rows):
    if asked.out:
        with open(asked.out, "a", encoding="utf-8") as file:
            for row in rows:
                more = {"ranks": asked.ranks, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
                more["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
                file.write(json.dumps({**row, **more}) + "\n")


def bandwidth(rank, asked, port):
    with on_card(rank, asked, port):
        torchs, n, rows = torch.distributed, asked.ranks, []
        comms = {gpus: hd.join(gpus=gpus, staging_mb=asked.staging) for gpus in asked.gpus.split(",")}
        host = next(iter(comms.values()))
        if rank == 0:
            print(f"{n} x {torch.cuda.get_device_name()}, NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}, staging {asked.staging} MB, bf16")
            print(f"{'call':16}{'bytes':>12}{'NCCL ms':>10}{'GB/s':>8}" + "".join(f"{'ours ' + g + ' ms':>16}{'GB/s':>8}" for g in comms))
        for size in (1 << 12, 1 << 16, 1 << 20, 1 << 24, 25 << 20, 100 << 20, 1 << 30):
            whole = torch.ones(n, size // 2 // n, dtype=torch.bfloat16, device="cuda")
            other, part = torch.empty_like(whole), whole[rank].clone()
            calls = {
                "all_reduce": (lambda: torchs.all_reduce(whole), lambda c: c.all_reduce(whole), 2 * (n - 1) / n),
                "reduce_scatter": (lambda: torchs.reduce_scatter_tensor(part, whole), lambda c: c.reduce_scatter(whole), (n - 1) / n),
                "all_gather": (lambda: torchs.all_gather_into_tensor(whole, part), lambda c: c.all_gather(part), (n - 1) / n),
                "exchange": (lambda: torchs.all_to_all_single(other, whole), lambda c: c.exchange(whole), (n - 1) / n),
                "broadcast": (lambda: torchs.broadcast(whole, 0), lambda c: c.broadcast(whole), 1),
            }
            for name, (theirs, ours, share) in calls.items():
                ways = {"NCCL": theirs, **{g: (lambda c=c, ours=ours: ours(c)) for g, c in comms.items()}}
                times = {way: [] for way in ways}
                repeats = max(3, min(50, (200 << 20) // size))
                for turn in range(asked.rounds + 1):
                    for way, call in ways.items():
                        host.barrier()
                        start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                        start.record()
                        for _ in range(repeats):
                            call()
                        stop.record()
                        stop.synchronize()
                        if turn:
                            times[way].append(start.elapsed_time(stop) / repeats)
                ms = {way: slowest(host, statistics.median(t)) for way, t in times.items()}
                rate = {way: size * share / t / 1e6 for way, t in ms.items()}
                for way in ways:
                    route = "torch" if way == "NCCL" else comms[way].gpus
                    rows.append({"call": name, "bytes": size, "who": way, "route": route, "ms": ms[way], "sent_bytes_per_s": rate[way] * 1e9})
                if rank == 0:
                    line = "".join(f"{ms[g]:16.3f}{rate[g]:8.1f}" for g in comms)
                    print(f"{name:16}{size:12}{ms['NCCL']:10.3f}{rate['NCCL']:8.1f}{line}", flush=True)
        if rank == 0:
            for g, c in comms.items():
                print(f"{g}: {c.gpus}")
            keep(asked, rows)
        for c in comms.values():
            c.close()


def built(way, preset, asked, comm):
    """(what to call, the optimizer, whether it is under autocast)"""
    from language_model import preset_model

    torch.manual_seed(0)
    with torch.device("cuda"):
        model = preset_model(preset, asked.len)
    for block in model.blocks:
        block.compile()
    autocast = True
    if way == "torch DDP":
        call = nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], gradient_as_bucket_view=True)
    elif way == "torch DDP, all compiled":
        for block in model.blocks:
            block._compiled_call_impl = None
        call = torch.compile(nn.parallel.DistributedDataParallel(model, device_ids=[torch.cuda.current_device()], gradient_as_bucket_view=True))
    elif way == "torch FSDP2":
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

        policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16)
        for block in model.blocks:
            fully_shard(block, mp_policy=policy)
        call, autocast = fully_shard(model, mp_policy=policy), False
    elif way.startswith("headroom DDP"):
        call = hd.DistributedDataParallel(model, comm, bucket_mb=25.0 if way.endswith("25 MB") else None)
    elif way == "headroom units":
        call, autocast = hd.FullyShardedDataParallel(model, comm, torch.bfloat16, units=model.blocks), False
    else:
        call = model
    optimizer = torch.optim.AdamW(call.parameters(), lr=1e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    return call, optimizer, autocast


def traced(step, path):
    """What two steps are on this rank's card: seconds by stream, and the largest kernels."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        for _ in range(2):
            step()
        torch.cuda.synchronize()
    profile.export_chrome_trace(path)
    with open(path, encoding="utf-8") as file:
        events = [e for e in json.load(file)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset") and "dur" in e]
    streams, names = {}, {}
    for e in events:
        streams.setdefault(e["args"]["stream"], []).append((e["ts"], e["ts"] + e["dur"]))
        total = names.setdefault(e["name"][:60], [0, 0.0])
        total[0] += 1
        total[1] += e["dur"]
    for stream, spans in sorted(streams.items(), key=lambda s: -len(s[1]))[:6]:
        busy, end = 0.0, 0.0
        for begin, stop in sorted(spans):
            busy += max(0.0, stop - max(begin, end))
            end = max(end, stop)
        span = max(s for _, s in spans) - min(b for b, _ in spans)
        print(f"    stream {stream}: {len(spans)} pieces, busy {busy / 2e3:.1f} of {span / 2e3:.1f} ms a step")
    for name, (count, us) in sorted(names.items(), key=lambda n: -n[1][1])[:12]:
        print(f"    {us / 2e3:9.2f} ms {count / 2:7.0f} x {name}")


def steps(rank, asked, port, preset, kind):
    import gpu_step
    import presets

    with on_card(rank, asked, port):
        comm = hd.join(staging_mb=asked.staging)
        ways = {"ddp": ["alone", "torch DDP", "headroom DDP", "headroom DDP, 25 MB"], "fsdp": ["torch FSDP2", "headroom units"],
                "whole": ["torch DDP, all compiled", "headroom DDP"]}[kind]  # fmt: skip
        batch = asked.batch or (4 if preset != "2.7B" or torch.cuda.get_device_properties(0).total_memory > 100e9 else 2)
        torch.manual_seed(1 + rank)
        tokens, targets = torch.randint(presets.VOCAB, (2, batch, asked.len), device="cuda")
        models, begun = {way: built(way, preset, asked, comm) for way in ways}, time.monotonic()
        losses, times, peaks, hosts = {way: [] for way in ways}, {way: [] for way in ways}, {}, {}

        def step(way):
            call, optimizer, autocast = models[way]
            with torch.autocast("cuda", torch.bfloat16, enabled=autocast):
                loss = call(tokens, targets)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
            return loss.detach()

        for turn in range(asked.rounds + 1):
            for way in ways:
                for _ in range(2):
                    losses[way].append(step(way))
                torch.cuda.synchronize()
                comm.barrier()
                torch.cuda.reset_peak_memory_stats()
                before = torch.cuda.memory_allocated()
                start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
                start.record()
                queued = time.perf_counter()
                for _ in range(asked.steps):
                    losses[way].append(step(way))
                hosts[way] = f"{(time.perf_counter() - queued) / asked.steps * 1e3:.1f}"
                stop.record()
                stop.synchronize()
                if turn:
                    times[way].append(slowest(comm, start.elapsed_time(stop) / asked.steps))
                    peaks[way] = f"{(torch.cuda.max_memory_allocated() - before) / 1e9:.2f}"
                gc.collect()
                torch.cuda.empty_cache()
            if rank == 0 and turn == 0:
                print(f"{preset} {kind}: ready after {time.monotonic() - begun:.0f} s", flush=True)
        if rank == 0:
            ms = {way: statistics.median(t) for way, t in times.items()}
            last = {way: f"{losses[way][-1].item():.5f}" for way in ways}
            spread = {way: f"{min(t):.1f}-{max(t):.1f}" for way, t in times.items()}
            title = f"{preset}, {asked.ranks} x {torch.cuda.get_device_name()}, batch {batch} each, len {asked.len}, "
            title += f"{asked.rounds} rounds of {asked.steps}, {comm.gpus}"
            table(title, ways, ms, (("rounds' ms", spread), ("host's ms", hosts), ("GB in a step", peaks), ("last loss", last)))
            keep(asked, [{"model": preset, "who": way, "ms": ms[way], "all_ms": times[way], "batch": batch, "len": asked.len} for way in ways])
        for way in ways if asked.trace else ():
            comm.barrier()
            if rank == 0:
                print(way)
                traced(lambda way=way: step(way), f"{asked.trace}.json")
            else:
                step(way), step(way)
                torch.cuda.synchronize()
        models.clear()
        comm.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, least in (("ranks", 2), ("width", 512), ("layers", 8), ("batch", 0), ("turns", 15), ("threads", 1), ("len", 1024), ("rounds", 3), ("steps", 8)):
        parser.add_argument("--" + name, type=int, default=least)
    parser.add_argument("--cards", default="", help="bandwidth, or MODEL:KIND,... of small, large, 2.7B and ddp, fsdp, whole")
    parser.add_argument("--gpus", default="auto,nccl")
    parser.add_argument("--staging", type=float, default=512)
    parser.add_argument("--out")
    parser.add_argument("--trace", help="a file: rank 0's trace of two more steps of each way, summed up in the output")
    asked, port = parser.parse_args(), 20000 + os.getpid() % 20000
    if not asked.cards:
        torch.multiprocessing.spawn(on_cpu, (asked, port), nprocs=asked.ranks)
    for i, one in enumerate(asked.cards.split(",") if asked.cards else ()):
        preset, _, kind = one.partition(":")
        body, more = (bandwidth, ()) if one == "bandwidth" else (steps, (preset, kind))
        torch.multiprocessing.spawn(body, (asked, port + i + 1, *more), nprocs=asked.ranks)


if __name__ == "__main__":
    main()
