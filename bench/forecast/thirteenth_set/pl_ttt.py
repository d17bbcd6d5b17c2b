"""Test-time training layers by hand: each chunk's inner weights take a step of gradient descent, the outer loss goes through it, chunks checkpointed."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class Inner(nn.Module):
    def __init__(self, dim, heads, chunk=64):
        super().__init__()
        self.heads, self.head, self.chunk = heads, dim // heads, chunk
        self.qkv, self.rate, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, heads), nn.Linear(dim, dim, bias=False)
        self.w1 = nn.Parameter(torch.randn(heads, self.head, 2 * self.head) * 0.02)
        self.w2 = nn.Parameter(torch.randn(heads, 2 * self.head, self.head) * 0.02)
        self.norm = nn.LayerNorm(self.head)

    def inner(self, x, w1, w2):
        return F.gelu(x @ w1, approximate="tanh") @ w2

    def turn(self, q, k, v, rate, w1, w2):
        with torch.enable_grad():
            a, b = (w1, w2) if w1.requires_grad else (w1.detach().requires_grad_(), w2.detach().requires_grad_())
            error = (rate * (self.norm(self.inner(k, a, b)) - (v - k)).pow(2)).sum()
            g1, g2 = torch.autograd.grad(error, (a, b), create_graph=True)
        w1, w2 = a - g1 / self.chunk, b - g2 / self.chunk
        return q + self.norm(self.inner(q, w1, w2)), w1, w2

    def forward(self, x):
        n = x.shape[0]
        q, k, v = self.qkv(x).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        rate = torch.sigmoid(self.rate(x)).transpose(1, 2)[..., None] * 0.1
        w1, w2 = self.w1.expand(n, -1, -1, -1), self.w2.expand(n, -1, -1, -1)
        outs = []
        for parts in zip(*(t.split(self.chunk, 2) for t in (q, k, v, rate))):
            o, w1, w2 = checkpoint(self.turn, *parts, w1, w2, use_reentrant=False)
            outs.append(o)
        return self.out(torch.cat(outs, 2).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, dim=512, heads=8):
        super().__init__()
        self.norm1, self.norm2, self.mix = nn.LayerNorm(dim), nn.LayerNorm(dim), Inner(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        x = x + self.mix(self.norm1(x))
        return x + self.mlp(self.norm2(x))


model = nn.Sequential(nn.Embedding(10000, 512), *[Block() for _ in range(4)], nn.LayerNorm(512), nn.Linear(512, 10000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(4):
    ids = torch.randint(0, 10000, (8, 513), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
