"""Pipeline parallel: two stages on each rank, ScheduleInterleaved1F1B, blocks of convolutions and attention cut by hand."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, ScheduleInterleaved1F1B


class Mixer(nn.Module):
    def __init__(self, tokens=196, d=768):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.tokens = nn.Sequential(nn.Linear(tokens, 384), nn.GELU(), nn.Linear(384, tokens))
        self.channels = nn.Sequential(nn.Linear(d, 3072), nn.GELU(), nn.Linear(3072, d))

    def forward(self, x):
        x = x + self.tokens(self.n1(x).transpose(1, 2)).transpose(1, 2)
        return x + self.channels(self.n2(x))


class Patches(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 768, 16, 16)

    def forward(self, x):
        return self.conv(x).flatten(2).transpose(1, 2).contiguous()


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.LayerNorm(768), nn.Linear(768, 1000)

    def forward(self, x):
        return self.out(self.norm(x).mean(1))


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
torch.manual_seed(0)
parts = [nn.Sequential(Patches(), Mixer(), Mixer()), nn.Sequential(Mixer(), Mixer(), Mixer()), nn.Sequential(Mixer(), Mixer(), Mixer()), nn.Sequential(Mixer(), Mixer(), Head())]
mine = [parts[i].to(device) for i in (rank, rank + 2)]
stages = [PipelineStage(m, i, 4, device) for m, i in zip(mine, (rank, rank + 2))]
schedule = ScheduleInterleaved1F1B(stages, n_microbatches=4, loss_fn=nn.functional.cross_entropy)
opt = torch.optim.AdamW([p for m in mine for p in m.parameters()], 1e-3)
for step in range(5):
    x, y = torch.randn(32, 3, 224, 224, device=device), torch.randint(0, 1000, (32,), device=device)
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=y, losses=losses)
    opt.step()
    opt.zero_grad()
print(rank, [round(float(l), 3) for l in losses])
dist.destroy_process_group()
