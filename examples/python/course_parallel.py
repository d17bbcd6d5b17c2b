"""The data-parallel classes that a course asks for (Stanford's CS336, assignment 2, tests/adapters.py), over Headroom's ranks."""

import os

import torch
import torch.multiprocessing

import gpu_headroom.torch.dist as hd


def get_ddp(module):
    return hd.DistributedDataParallel(module, how="per parameter")  # begins to send a gradient as soon as it is there


def ddp_on_after_backward(ddp_model, optimizer):
    pass  # backward() has waited


def get_sharded_optimizer(params, optimizer_cls, **kwargs):
    return hd.ShardedOptimizer(params, optimizer_cls, **kwargs)


def get_fsdp(module, compute_dtype=None):
    return hd.FullyShardedDataParallel(module, compute_dtype=compute_dtype)


def fsdp_on_after_backward(fsdp_model, optimizer):
    pass


def fsdp_gather_full_params(fsdp_model):
    return fsdp_model.whole_parameters()


def train(rank, ranks, name):
    """Three ranks with a third of a batch each, and one process with the three in turn: the same bits."""
    with hd.join(rank, ranks, name) as comm:
        torch.manual_seed(0)
        alone = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
        model = hd.DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)), comm)
        model.module.load_state_dict(alone.state_dict())
        optimizers = [torch.optim.AdamW(m.parameters(), lr=1e-2) for m in (alone, model)]
        for _ in range(5):
            x, y = torch.randn(ranks, 8, 16), torch.randn(ranks, 8, 4)
            for optimizer in optimizers:
                optimizer.zero_grad()
            for r in range(ranks):
                torch.nn.functional.mse_loss(alone(x[r]), y[r]).backward()
            for p in alone.parameters():
                p.grad /= ranks
            torch.nn.functional.mse_loss(model(x[rank]), y[rank]).backward()
            for optimizer in optimizers:
                optimizer.step()
        apart = max((p - q).abs().max().item() for p, q in zip(alone.parameters(), model.module.parameters()))
        if rank == 0:
            print(f"largest difference of a weight from one process's: {apart:.1e}")


if __name__ == "__main__":
    torch.multiprocessing.spawn(train, (3, f"local:course-{os.getpid()}"), nprocs=3)
