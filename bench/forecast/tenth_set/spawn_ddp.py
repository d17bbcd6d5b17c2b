"""mp.spawn, as in the DDP tutorial: a convolutional classifier, one process a card that is seen, broadcast buffers, a barrier before each checkpoint."""
import os
import sys
import tempfile
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


def net():
    layers, c = [], 3
    for w in (64, 128, 256, 512):
        layers += [nn.Conv2d(c, w, 3, padding=1), nn.BatchNorm2d(w), nn.ReLU(), nn.MaxPool2d(2)]
        c = w
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 4096), nn.ReLU(), nn.Dropout(0.5), nn.Linear(4096, 100))


def worker(rank, world, folder):
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", "29533")
    dist.init_process_group("nccl", rank=rank, world_size=world)
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    model = DDP(net().to(rank), device_ids=[rank], output_device=rank)
    opt = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9, nesterov=True)
    path = os.path.join(folder, "model.pt")
    for epoch in range(2):
        for _ in range(5):
            x, y = torch.randn(64, 3, 96, 96).to(rank), torch.randint(0, 100, (64,)).to(rank)
            opt.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            opt.step()
        if rank == 0:
            torch.save(model.state_dict(), path)
        dist.barrier()
        model.load_state_dict(torch.load(path, map_location={"cuda:0": f"cuda:{rank}"}))
    print(f"rank {rank} peaks {torch.cuda.max_memory_allocated()} {torch.cuda.max_memory_reserved()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    mp.spawn(worker, args=(torch.cuda.device_count(), tempfile.mkdtemp()), nprocs=torch.cuda.device_count())
