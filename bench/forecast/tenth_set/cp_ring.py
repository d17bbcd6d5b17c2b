"""Context parallel: ring attention by torch.distributed.tensor.experimental, sequences of 8192 tokens over two cards, the model replicated, gradients summed by hand."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn.attention import SDPBackend, sdpa_kernel


class Block(nn.Module):
    def __init__(self, d=512, heads=8):
        super().__init__()
        self.heads, self.n1, self.n2, self.qkv, self.o = heads, nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("cp",))
torch.manual_seed(0)
embed, blocks, head = nn.Embedding(4096, 512), nn.Sequential(*(Block() for _ in range(4))), nn.Linear(512, 4096)
model = nn.ModuleList([embed, blocks, head]).to("cuda", torch.bfloat16)
opt = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(4):
    torch.manual_seed(step)
    x, y = torch.randint(0, 4096, (2, 8192), device="cuda"), torch.randint(0, 4096, (2, 8192), device="cuda")
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION), context_parallel(mesh, buffers=[x, y], buffer_seq_dims=[1, 1]):
        loss = F.cross_entropy(head(blocks(embed(x))).flatten(0, 1), y.flatten())
        loss.backward()
        for p in model.parameters():
            dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        opt.step()
        opt.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
