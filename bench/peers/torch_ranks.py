"""A step of data parallelism on the CPU's ranks: gpu_headroom.torch.dist beside torch's own classes over gloo, in turns in one group of processes.

    python bench/peers/torch_ranks.py --ranks 2 --width 512 --layers 8

A row for each way: median milliseconds of a forward and a backward pass on rank 0, those above the same passes without communication, and their
share. Other programs on the machine disturb it. PYTHONPATH=python and HEADROOM_LIBRARY, or an installed wheel.
"""

import argparse
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


def work(rank, asked, port):
    torch.set_num_threads(asked.threads)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.distributed.init_process_group("gloo", rank=rank, world_size=asked.ranks)
    comm = hd.join()
    models = {}
    for way in WAYS:
        torch.manual_seed(0)
        net = nn.Sequential(*(m for _ in range(asked.layers) for m in (nn.Linear(asked.width, asked.width), nn.GELU())))
        models[way] = made(way, net, comm)
    x = torch.randn(asked.batch, asked.width)
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
        print(f"{asked.ranks} ranks, {asked.threads} threads each, {parameters / 1e6:.1f} M parameters, batch {asked.batch}, torch {torch.__version__}")
        alone = statistics.median(times["alone"])
        print(f"{'way':26}{'ms a step':>12}{'over alone':>12}{'share':>8}")
        for way in WAYS:
            ms = statistics.median(times[way])
            print(f"{way:26}{ms:12.1f}{ms - alone:12.1f}{max(0.0, 1 - alone / ms):8.0%}")
    comm.close()
    torch.distributed.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, least in (("ranks", 2), ("width", 512), ("layers", 8), ("batch", 64), ("turns", 15), ("threads", 1)):
        parser.add_argument("--" + name, type=int, default=least)
    torch.multiprocessing.spawn(work, (parser.parse_args(), 20000 + os.getpid() % 20000), nprocs=parser.parse_args().ranks)


if __name__ == "__main__":
    main()
