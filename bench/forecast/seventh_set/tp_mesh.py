"""A mesh of one by one: layers split by columns and rows, a loss over split words, FSDP2 above it."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, loss_parallel, parallelize_module
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
torch.cuda.set_device(0)
mesh = init_device_mesh("cuda", (1, 1), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
D = 640
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.RMSNorm(D), nn.RMSNorm(D)
        self.q, self.k, self.v, self.o = (nn.Linear(D, D, bias=False) for _ in range(4))
        self.gate, self.up, self.down = nn.Linear(D, 1728, bias=False), nn.Linear(D, 1728, bias=False), nn.Linear(1728, D, bias=False)
    def forward(self, x):
        y = self.a(x)
        q, k, v = (l(y).unflatten(-1, (-1, 64)).transpose(1, 2) for l in (self.q, self.k, self.v))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        y = self.b(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks, self.norm, self.head = nn.Embedding(16000, D), nn.ModuleList(Block() for _ in range(5)), nn.RMSNorm(D), nn.Linear(D, 16000, bias=False)
    def forward(self, ids):
        x = self.words(ids)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))
model = LM().cuda()
tp = mesh["tp"]
parallelize_module(model, tp, {"words": RowwiseParallel(input_layouts=Replicate()), "head": ColwiseParallel(use_local_output=False)})
col, row = ColwiseParallel, RowwiseParallel
for block in model.blocks:
    parallelize_module(block, tp, {"q": col(), "k": col(), "v": col(), "o": row(), "gate": col(), "up": col(), "down": row()})
    fully_shard(block, mesh=mesh["dp"])
fully_shard(model, mesh=mesh["dp"])
optimizer = torch.optim.AdamW(model.parameters(), 3e-4, foreach=False)
for step in range(4):
    ids = torch.randint(0, 16000, (4, 401), device="cuda")
    with loss_parallel():
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
dist.destroy_process_group()
