"""2:4 sparsity: a transformer trained with the two smallest of four weights masked, then served in fp16 by semi-structured matrices, dense and sparse in turns."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.sparse import to_sparse_semi_structured

torch.manual_seed(0)


class Sparse(nn.Linear):
    def mask(self):
        groups = self.weight.abs().unflatten(1, (-1, 4))
        kept = torch.zeros_like(groups, dtype=torch.bool).scatter_(2, groups.topk(2, 2).indices, True)
        return kept.flatten(1)

    def forward(self, x):
        weight = self.weight
        if self.training:
            weight = weight + (weight * self.mask() - weight).detach()
        return F.linear(x, weight, self.bias)


class Block(nn.Module):
    def __init__(self, dim=1024, heads=16):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out, self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), Sparse(dim, 4 * dim), Sparse(4 * dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


model = nn.Sequential(nn.Embedding(16000, 1024), *[Block() for _ in range(6)], nn.LayerNorm(1024), nn.Linear(1024, 16000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-4, fused=True)
for step in range(5):
    ids = torch.randint(0, 16000, (8, 513), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(loss.item())
del optimizer
model = model.eval().half().requires_grad_(False)
ids = torch.randint(0, 16000, (16, 512), device="cuda")
with torch.inference_mode():
    dense = model(ids).float().logsumexp(-1).mean()
for module in model.modules():
    if isinstance(module, Sparse):
        module.weight = nn.Parameter(to_sparse_semi_structured(module.weight * module.mask()), requires_grad=False)
with torch.inference_mode():
    for _ in range(3):
        sparse = model(ids).float().logsumexp(-1).mean()
print(dense.item(), sparse.item())
