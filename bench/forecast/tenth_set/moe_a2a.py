"""Experts over ranks: four experts a rank, tokens sent by all_to_all_single with as many to each expert as its capacity, dense layers in data parallel."""
import os
import torch
import torch.distributed as dist
import torch.distributed.nn.functional as df
import torch.nn as nn
import torch.nn.functional as F


class Experts(nn.Module):
    def __init__(self, d=768, experts=8, factor=1.25):
        super().__init__()
        self.world, self.experts, self.factor = dist.get_world_size(), experts, factor
        self.router = nn.Linear(d, experts, bias=False)
        here = experts // self.world
        self.w1, self.w2 = nn.Parameter(torch.randn(here, d, 4 * d) * 0.02), nn.Parameter(torch.randn(here, 4 * d, d) * 0.02)

    def forward(self, x):
        n, d = x.shape
        gate, chosen = self.router(x).softmax(-1).max(-1)
        capacity = int(self.factor * n / self.experts)
        hot = F.one_hot(chosen, self.experts)
        place = (hot.cumsum(0) * hot).sum(-1) - 1
        fits = (place < capacity).to(x.dtype)
        dispatch = torch.einsum("ne,nc->nec", hot.to(x.dtype) * fits[:, None], F.one_hot(place.clamp(max=capacity - 1), capacity).to(x.dtype))
        sent = torch.einsum("nec,nd->ecd", dispatch, x).contiguous()
        got = df.all_to_all_single(torch.empty_like(sent), sent)
        got = got.view(self.world, -1, capacity, d).transpose(0, 1).reshape(-1, self.world * capacity, d)
        out = torch.bmm(F.gelu(torch.bmm(got, self.w1)), self.w2)
        out = out.view(-1, self.world, capacity, d).transpose(0, 1).reshape(self.experts, capacity, d).contiguous()
        back = df.all_to_all_single(torch.empty_like(out), out)
        return torch.einsum("nec,ecd->nd", dispatch, back) * gate[:, None]


class Layer(nn.Module):
    def __init__(self, d=768):
        super().__init__()
        self.n1, self.n2, self.attention, self.experts = nn.LayerNorm(d), nn.LayerNorm(d), nn.MultiheadAttention(d, 12, batch_first=True), Experts(d)

    def forward(self, x):
        h = self.n1(x)
        x = x + self.attention(h, h, h, need_weights=False)[0]
        return x + self.experts(self.n2(x).flatten(0, 1)).view_as(x)


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
model = nn.Sequential(*(Layer() for _ in range(4)), nn.Linear(768, 768)).cuda()
shared = [p for n, p in model.named_parameters() if "experts.w" not in n]
for p in shared:
    dist.broadcast(p.data, 0)
opt = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(6):
    x = torch.randn(4, 256, 768, device="cuda")
    loss = F.mse_loss(model(x), x.roll(1, 1))
    loss.backward()
    for p in shared:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    opt.step()
    opt.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
