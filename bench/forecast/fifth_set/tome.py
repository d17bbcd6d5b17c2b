"""A ViT whose tokens are merged between layers by similarity (ToMe), trained in bf16 by autocast, then measured without gradients."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
def merge(x, size, r):
    with torch.no_grad():
        m = F.normalize(x, dim=-1)
        a, b = m[:, ::2], m[:, 1::2]
        scores = a @ b.transpose(1, 2)
        scores[:, 0] = -torch.inf
        most, to = scores.max(-1)
        order = most.argsort(-1, descending=True)[..., None]
        stay, go = order[:, r:].sort(1)[0], order[:, :r]
        to = to[..., None].gather(1, go)
    def both(t):
        c = t.shape[-1]
        s, d = t[:, ::2], t[:, 1::2]
        kept, moved = s.gather(1, stay.expand(-1, -1, c)), s.gather(1, go.expand(-1, -1, c))
        return torch.cat([kept, d.scatter_add(1, to.expand(-1, -1, c), moved)], 1)
    total = both(size)
    return both(x * size) / total, total
class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2, self.qkv, self.out = heads, nn.LayerNorm(d), nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x, size, r):
        B, N, d = x.shape
        q, k, v = self.qkv(self.n1(x)).view(B, N, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        a = (q @ k.transpose(-2, -1)) * q.shape[-1] ** -0.5 + size.log()[:, None, None, :, 0]
        x = x + self.out((a.softmax(-1).to(v.dtype) @ v).transpose(1, 2).reshape(B, N, d))
        x, size = merge(x, size, r)
        return x + self.mlp(self.n2(x)), size
class ViT(nn.Module):
    def __init__(self, d=390, heads=6, layers=8):
        super().__init__()
        self.patch, self.cls, self.place = nn.Conv2d(3, d, 16, 16), nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.randn(1, 197, d) * 0.02)
        self.blocks, self.head = nn.ModuleList(Block(d, heads) for _ in range(layers)), nn.Linear(d, 1000)
    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.place
        size = torch.ones_like(x[..., :1])
        for b in self.blocks:
            x, size = b(x, size, 13)
        return self.head(x[:, 0])
model = ViT().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(4):
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(torch.randn(26, 3, 224, 224, device="cuda")), torch.randint(0, 1000, (26,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    print(loss.item(), model(torch.randn(100, 3, 224, 224, device="cuda")).shape)
