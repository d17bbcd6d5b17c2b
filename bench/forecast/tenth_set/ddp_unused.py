"""DDP with find_unused_parameters: many heads on one trunk, one task drawn on the host for each step, small buckets."""
import os
import random
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel as DDP


class Tasks(nn.Module):
    def __init__(self, tasks=5, d=1024):
        super().__init__()
        layer = nn.TransformerEncoderLayer(d, 16, 4 * d, batch_first=True, norm_first=True)
        self.trunk = nn.TransformerEncoder(layer, 4, enable_nested_tensor=False)
        self.heads = nn.ModuleList(nn.Sequential(nn.Linear(d, 2 * d), nn.SiLU(), nn.Linear(2 * d, 200 * (t + 1))) for t in range(tasks))

    def forward(self, x, task):
        return self.heads[task](self.trunk(x).mean(1))


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
torch.manual_seed(0)
random.seed(0)
model = DDP(Tasks().to(device), device_ids=[rank], find_unused_parameters=True, bucket_cap_mb=8)
opt = torch.optim.Adam(model.parameters(), 1e-4)
for step in range(12):
    task = random.randrange(5)
    x = torch.randn(16, 128, 1024, device=device)
    y = torch.randint(0, 200 * (task + 1), (16,), device=device)
    loss = nn.functional.cross_entropy(model(x, task), y)
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0:
        print(step, task, float(loss.detach()))
dist.destroy_process_group()
