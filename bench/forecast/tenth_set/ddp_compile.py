"""torch.compile of a model in DDP (its optimizer of graphs splits them at buckets), bf16, fused AdamW."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


class Layer(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.norm, self.up, self.gate, self.down = nn.RMSNorm(d), nn.Linear(d, 3 * d, bias=False), nn.Linear(d, 3 * d, bias=False), nn.Linear(3 * d, d, bias=False)
        self.an, self.qkv, self.o = nn.RMSNorm(d), nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.an(x)).view(b, t, 3, 8, d // 8).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        h = self.norm(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.layers, self.head = nn.Embedding(12000, 768), nn.Sequential(*(Layer(768) for _ in range(4))), nn.Linear(768, 12000, bias=False)

    def forward(self, i, y):
        return F.cross_entropy(self.head(self.layers(self.embed(i))).float().flatten(0, 1), y.flatten())


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = torch.compile(DDP(Model().cuda(), device_ids=[rank]))
opt = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
for step in range(6):
    i = torch.randint(0, 12000, (8, 513), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(i[:, :-1], i[:, 1:])
    loss.backward()
    opt.step()
    opt.zero_grad()
if rank == 0:
    print(loss.item())
dist.destroy_process_group()
