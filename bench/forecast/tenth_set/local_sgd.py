"""Post-local SGD: post_localSGD_hook for the first steps, then PeriodicModelAverager every third step, a WaveNet-like stack of dilated convolutions."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.distributed.algorithms.model_averaging.averagers as averagers
from torch.distributed.algorithms.ddp_comm_hooks.post_localSGD_hook import PostLocalSGDState, post_localSGD_hook
from torch.distributed.optim import PostLocalSGDOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP


class Dilated(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.conv, self.skip = nn.Conv1d(c, 2 * c, 3, padding=d, dilation=d), nn.Conv1d(c, c, 1)

    def forward(self, x):
        a, b = self.conv(x).chunk(2, 1)
        return x + self.skip(a.tanh() * b.sigmoid())


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = DDP(nn.Sequential(nn.Conv1d(1, 192, 1), *(Dilated(192, 2 ** (i % 6)) for i in range(12)), nn.Conv1d(192, 256, 1)).cuda(), device_ids=[rank])
model.register_comm_hook(PostLocalSGDState(process_group=None, subgroup=None, start_localSGD_iter=5), post_localSGD_hook)
opt = PostLocalSGDOptimizer(torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), averagers.PeriodicModelAverager(period=3, warmup_steps=5))
for step in range(14):
    x = torch.rand(8, 1, 4001, device="cuda")
    loss = nn.functional.cross_entropy(model(x[..., :-1]), (x[:, 0, 1:] * 255).long())
    opt.zero_grad()
    loss.backward()
    opt.step()
print(rank, loss.item())
dist.destroy_process_group()
