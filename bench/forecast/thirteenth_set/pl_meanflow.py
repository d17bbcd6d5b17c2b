"""MeanFlow by hand: a small diffusion transformer learns mean velocities by torch.func.jvp, labels dropped, an EMA, pictures drawn in one step and in four."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def of_time(t, dim):
    angles = t[:, None] * torch.exp(-torch.arange(dim // 2, device=t.device) * 8.0 / (dim // 2)) * 1000
    return torch.cat([angles.cos(), angles.sin()], -1)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(dim, elementwise_affine=False), nn.LayerNorm(dim, elementwise_affine=False)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(approximate="tanh"), nn.Linear(4 * dim, dim))
        self.modulate = nn.Sequential(nn.SiLU(), nn.Linear(dim, 6 * dim))

    def forward(self, x, c):
        a, b, g, d, e, h = self.modulate(c)[:, None].chunk(6, -1)
        q, k, v = self.qkv(self.norm1(x) * (1 + a) + b).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).softmax(-1)  # jvp has no formula for the fused kernel
        x = x + g * self.out((weights @ v).transpose(1, 2).flatten(2))
        return x + h * self.mlp(self.norm2(x) * (1 + d) + e)


class DiT(nn.Module):
    def __init__(self, dim=384, depth=8, heads=6, patch=4, size=32, channels=4, labels=100):
        super().__init__()
        self.patch, self.side = patch, size // patch
        self.embed = nn.Linear(channels * patch * patch, dim)
        self.where = nn.Parameter(torch.randn(self.side**2, dim) * 0.02)
        self.when, self.label = nn.Sequential(nn.Linear(2 * dim, dim), nn.SiLU(), nn.Linear(dim, dim)), nn.Embedding(labels + 1, dim)
        self.blocks = nn.ModuleList(Block(dim, heads) for _ in range(depth))
        self.head = nn.Linear(dim, channels * patch * patch)
        self.dim = dim

    def forward(self, z, r, t, y):
        p = self.patch
        x = self.embed(z.unfold(2, p, p).unfold(3, p, p).permute(0, 2, 3, 1, 4, 5).flatten(3).flatten(1, 2)) + self.where
        c = self.when(torch.cat([of_time(t, self.dim), of_time(t - r, self.dim)], -1)) + self.label(y)
        for block in self.blocks:
            x = block(x, c)
        x = self.head(x).unflatten(1, (self.side, self.side)).unflatten(-1, (-1, p, p))
        return x.permute(0, 3, 1, 4, 2, 5).reshape(z.shape)


net = DiT().cuda()
ema = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4, betas=(0.9, 0.95))
for step in range(6):
    x, y = torch.randn(64, 4, 32, 32, device="cuda"), torch.randint(0, 100, (64,), device="cuda")
    y = torch.where(torch.rand(64, device="cuda") < 0.1, 100, y)
    t, r = torch.sigmoid(torch.randn(2, 64, device="cuda") - 0.4).sort(0, descending=True).values
    r = torch.where(torch.rand(64, device="cuda") < 0.75, t, r)
    e = torch.randn_like(x)
    z, v = (1 - t[:, None, None, None]) * x + t[:, None, None, None] * e, e - x
    u, du = torch.func.jvp(lambda z, r, t: net(z, r, t, y), (z, r, t), (v, torch.zeros_like(r), torch.ones_like(t)))
    error = (u - (v - (t - r)[:, None, None, None] * du).detach()).pow(2).flatten(1).sum(1)
    loss = (error / (error.detach() + 1e-3)).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for a, b in zip(ema.parameters(), net.parameters()):
            a.lerp_(b, 0.01)
with torch.no_grad():
    for steps in (1, 4):
        z, y = torch.randn(256, 4, 32, 32, device="cuda"), torch.randint(0, 100, (256,), device="cuda")
        times = torch.linspace(1, 0, steps + 1, device="cuda")
        for t, r in zip(times, times[1:]):
            z = z - (t - r) * ema(z, r.expand(256), t.expand(256), y)
print(loss.item(), z.std().item())
