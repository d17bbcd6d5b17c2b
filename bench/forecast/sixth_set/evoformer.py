"""AlphaFold's Evoformer by hand: rows with a bias of pairs, columns, outer product mean, triangles both ways, blocks checkpointed in two parts, bf16."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint_sequential
torch.manual_seed(0)
M, Z = 96, 72
class Gated(nn.Module):
    def __init__(self, d, heads=4, bias=0):
        super().__init__()
        self.norm, self.qkvg, self.out, self.heads = nn.LayerNorm(d), nn.Linear(d, 4 * d, bias=False), nn.Linear(d, d), heads
        self.bias = nn.Sequential(nn.LayerNorm(bias), nn.Linear(bias, heads, bias=False)) if bias else None
    def forward(self, x, pair=None):
        q, k, v, g = self.qkvg(self.norm(x)).chunk(4, -1)
        q, k, v = (t.unflatten(-1, (self.heads, -1)).transpose(-2, -3) for t in (q, k, v))
        a = q @ k.transpose(-1, -2) * q.shape[-1] ** -0.5
        if pair is not None:
            a = a + self.bias(pair).movedim(-1, -3)[:, None]
        o = (a.softmax(-1).to(v.dtype) @ v).transpose(-2, -3).flatten(-2)
        return self.out(o * g.sigmoid())
class Triangle(nn.Module):
    def __init__(self, form):
        super().__init__()
        self.norm, self.ab, self.gate, self.n2, self.out, self.g, self.form = nn.LayerNorm(Z), nn.Linear(Z, 2 * Z), nn.Linear(Z, 2 * Z), nn.LayerNorm(Z), nn.Linear(Z, Z), nn.Linear(Z, Z), form
    def forward(self, z):
        n = self.norm(z)
        a, b = (self.ab(n) * self.gate(n).sigmoid()).chunk(2, -1)
        return self.out(self.n2(torch.einsum(self.form, a, b))) * self.g(n).sigmoid()
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.rows, self.columns, self.mt = Gated(M, bias=Z), Gated(M), nn.Sequential(nn.LayerNorm(M), nn.Linear(M, 4 * M), nn.ReLU(), nn.Linear(4 * M, M))
        self.on, self.oa, self.ob = nn.LayerNorm(M), nn.Linear(M, 2 * 20), nn.Linear(400, Z)
        self.out, self.into = Triangle("bikc,bjkc->bijc"), Triangle("bkic,bkjc->bijc")
        self.start, self.end, self.zt = Gated(Z, bias=Z), Gated(Z, bias=Z), nn.Sequential(nn.LayerNorm(Z), nn.Linear(Z, 4 * Z), nn.ReLU(), nn.Linear(4 * Z, Z))
    def forward(self, both):
        m, z = both
        m = m + F.dropout(self.rows(m, z), 0.15, self.training)
        m = m + self.columns(m.transpose(1, 2)).transpose(1, 2)
        m = m + self.mt(m)
        a, b = self.oa(self.on(m)).chunk(2, -1)
        z = z + self.ob(torch.einsum("bsic,bsjd->bijcd", a, b).flatten(-2) / m.shape[1])
        z = z + self.out(z)
        z = z + self.into(z)
        z = z + self.start(z, z)
        z = z + self.end(z.transpose(1, 2), z.transpose(1, 2)).transpose(1, 2)
        return m, z + self.zt(z)
blocks = nn.Sequential(*(Block() for _ in range(4))).cuda()
msa, pair, head = nn.Embedding(23, M).cuda(), nn.Embedding(65, Z).cuda(), nn.Linear(Z, 39).cuda()
optimizer = torch.optim.Adam([*blocks.parameters(), *msa.parameters(), *pair.parameters(), *head.parameters()], 1e-3)
for n in (71, 83, 64, 83):
    ids, place = torch.randint(0, 23, (1, 37, n), device="cuda"), torch.arange(n, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        m, z = msa(ids), pair((place[:, None] - place).clamp(-32, 32) + 32)[None]
        m, z = checkpoint_sequential(blocks, 2, (m, z), use_reentrant=False)
        logits = head(z + z.transpose(1, 2))
    loss = F.cross_entropy(logits.float().flatten(0, 2), torch.randint(0, 39, (n * n,), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
