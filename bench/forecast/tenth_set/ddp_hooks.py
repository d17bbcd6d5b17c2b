"""DDP's communication hooks, one after another: fp16_compress, bf16_compress, PowerSGD, each with a model of its own."""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)


def train(hook, state, d):
    torch.manual_seed(0)
    model = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(d, d), nn.LayerNorm(d), nn.ReLU())), nn.Linear(d, 1000)).cuda()
    ddp = DDP(model, device_ids=[rank], bucket_cap_mb=10)
    ddp.register_comm_hook(state, hook)
    opt = torch.optim.SGD(ddp.parameters(), 0.01, momentum=0.9)
    for step in range(8):
        x, y = torch.randn(512, d, device="cuda"), torch.randint(0, 1000, (512,), device="cuda")
        loss = nn.functional.cross_entropy(ddp(x), y)
        loss.backward()
        opt.step()
        opt.zero_grad()
    if rank == 0:
        print(getattr(hook, "__name__", hook), loss.item(), torch.cuda.max_memory_allocated() >> 20)


train(default_hooks.fp16_compress_hook, None, 2048)
train(default_hooks.bf16_compress_hook, None, 2304)
train(powerSGD_hook.powerSGD_hook, powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=3), 2560)
dist.destroy_process_group()
