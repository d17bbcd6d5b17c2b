"""DDP on one rank: a static graph, gradients as views of the buckets, blocks checkpointed, weights that are not used."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
dist.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = nn.ModuleList(nn.Sequential(nn.LayerNorm(1024), nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(6))
        self.out = nn.Linear(1024, 100)
    def forward(self, x):
        for block in self.blocks:
            x = x + checkpoint(block, x, use_reentrant=False)
        return self.out(x)
model = DistributedDataParallel(Net().cuda(), device_ids=[0], static_graph=True, gradient_as_bucket_view=True, bucket_cap_mb=15)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(5):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(torch.randn(4096, 1024, device="cuda")), torch.randint(0, 100, (4096,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
dist.destroy_process_group()
