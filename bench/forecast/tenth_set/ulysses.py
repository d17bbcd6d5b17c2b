"""Sequence parallel by two all-to-alls around attention (Ulysses) in an autograd function, ZeRO-1 by hand: gradients reduce-scattered flat, weights gathered flat."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Exchange(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, split, join):
        ctx.dims = split, join
        parts = [p.contiguous() for p in x.chunk(dist.get_world_size(), split)]
        got = [torch.empty_like(p) for p in parts]
        dist.all_to_all(got, parts)
        return torch.cat(got, join)

    @staticmethod
    def backward(ctx, g):
        split, join = ctx.dims
        return Exchange.apply(g, join, split), None, None


class Block(nn.Module):
    def __init__(self, d=1024, heads=16):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.o, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        qkv = self.qkv(self.n1(x)).view(b, t, 3, self.heads, d // self.heads)
        q, k, v = Exchange.apply(qkv, 3, 1).permute(2, 0, 3, 1, 4)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
        x = x + self.o(Exchange.apply(a, 1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x))))


dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
embed, head = nn.Embedding(8192, 1024), nn.Linear(1024, 8192)
model = nn.Sequential(embed, *(Block() for _ in range(4)), head).to("cuda", torch.bfloat16)
params = list(model.parameters())
size = sum(p.numel() for p in params)
flat = torch.zeros((size + world - 1) // world * world, dtype=torch.bfloat16, device="cuda")
at = 0
for p in params:
    flat[at:at + p.numel()] = p.data.flatten()
    p.data = flat[at:at + p.numel()].view_as(p)
    at += p.numel()
mine = flat.chunk(world)[rank]
master = nn.Parameter(mine.float())
opt = torch.optim.AdamW([master], 1e-4, fused=True)
for step in range(6):
    torch.manual_seed(step)
    i = torch.randint(0, 8192, (2, 4097), device="cuda")
    x, y = (s.chunk(world, 1)[rank] for s in (i[:, :-1], i[:, 1:]))
    loss = F.cross_entropy(model(x).float().flatten(0, 1), y.flatten())
    loss.backward()
    grads = torch.cat([*(p.grad.flatten() for p in params), flat.new_zeros(len(flat) - size)])
    model.zero_grad()
    shard = torch.empty_like(mine)
    dist.reduce_scatter_tensor(shard, grads, op=dist.ReduceOp.AVG)
    del grads
    master.grad = shard.float()
    opt.step()
    mine.copy_(master.detach())
    dist.all_gather_into_tensor(flat, mine.clone())
print(rank, loss.item())
dist.destroy_process_group()
