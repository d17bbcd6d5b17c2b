"""Experts by sorting tokens: top 2 of 8, offsets by cumsum of counts, one grouped product for all experts, bf16."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
class Experts(nn.Module):
    def __init__(self, d=512, hidden=896, experts=8, k=2):
        super().__init__()
        self.k, self.experts = k, experts
        self.router = nn.Linear(d, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, d, 2 * hidden) * 0.02)
        self.down = nn.Parameter(torch.randn(experts, hidden, d) * 0.02)
    def forward(self, x):
        flat = x.flatten(0, 1)
        weights, chosen = F.softmax(self.router(flat).float(), -1).topk(self.k, -1)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.zeros(self.experts, dtype=torch.int32, device=x.device).scatter_add_(0, chosen.flatten(), torch.ones_like(chosen.flatten(), dtype=torch.int32))
        offsets = counts.cumsum(0, dtype=torch.int32)
        rows = flat[order // self.k]
        a, b = torch._grouped_mm(rows, self.up, offs=offsets).chunk(2, -1)
        y = torch._grouped_mm(F.silu(a) * b, self.down, offs=offsets)
        out = torch.zeros_like(flat)
        out.index_add_(0, order // self.k, y * weights.flatten()[order].unsqueeze(-1))
        return out.view_as(x)
class Block(nn.Module):
    def __init__(self, d=512):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out, self.moe = nn.Linear(d, 3 * d), nn.Linear(d, d), Experts(d)
    def forward(self, x):
        q, k, v = (t.view(*x.shape[:2], 8, 64).transpose(1, 2) for t in self.qkv(self.n1(x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(x.shape))
        return x + self.moe(self.n2(x))
model = nn.Sequential(nn.Embedding(12007, 512), *(Block() for _ in range(4)), nn.RMSNorm(512), nn.Linear(512, 12007, bias=False)).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(5):
    ids = torch.randint(0, 12007, (7, 401), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
