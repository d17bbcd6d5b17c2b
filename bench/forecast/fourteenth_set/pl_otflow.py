"""Rectified flow on pictures: noise paired with pictures by optimal transport on the host, a U-Net by hand with attention, logit-normal times, EMA, drawn by dopri5."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.optimize import linear_sum_assignment
from torchdiffeq import odeint

torch.manual_seed(0)


class Res(nn.Module):
    def __init__(self, a, b, t=512):
        super().__init__()
        self.n1, self.c1, self.n2, self.c2, self.t = nn.GroupNorm(32, a), nn.Conv2d(a, b, 3, 1, 1), nn.GroupNorm(32, b), nn.Conv2d(b, b, 3, 1, 1), nn.Linear(t, 2 * b)
        self.side = nn.Conv2d(a, b, 1) if a != b else nn.Identity()

    def forward(self, x, t):
        scale, shift = self.t(F.silu(t))[:, :, None, None].chunk(2, 1)
        y = self.n2(self.c1(F.silu(self.n1(x)))) * (1 + scale) + shift
        return self.side(x) + self.c2(F.dropout(F.silu(y), 0.1, self.training))


class Look(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.norm, self.qkv, self.out = nn.GroupNorm(32, c), nn.Conv2d(c, 3 * c, 1), nn.Conv2d(c, c, 1)

    def forward(self, x):
        b, c, h, w = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, 3, 4, c // 4, h * w).transpose(-1, -2).unbind(1)
        return x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(-1, -2).reshape(b, c, h, w))


class UNet(nn.Module):
    def __init__(self, c=128):
        super().__init__()
        self.time = nn.Sequential(nn.Linear(256, 512), nn.SiLU(), nn.Linear(512, 512))
        self.into, self.out = nn.Conv2d(3, c, 3, 1, 1), nn.Sequential(nn.GroupNorm(32, c), nn.SiLU(), nn.Conv2d(c, 3, 3, 1, 1))
        self.down = nn.ModuleList([Res(c, c), Res(c, 2 * c), Res(2 * c, 2 * c)])
        self.up = nn.ModuleList([Res(4 * c, 2 * c), Res(4 * c, 2 * c), Res(3 * c, c)])
        self.mid, self.look, self.end = Res(2 * c, 2 * c), Look(2 * c), Res(2 * c, 2 * c)

    def forward(self, t, x):
        angle = t.reshape(-1).expand(len(x))[:, None] * torch.exp(torch.linspace(0, -9, 128, device=x.device)) * 1000
        t = self.time(torch.cat([angle.sin(), angle.cos()], 1))
        x, kept = self.into(x), []
        for block in self.down:
            x = block(x, t)
            kept.append(x)
            x = F.avg_pool2d(x, 2)
        x = self.end(self.look(self.mid(x, t)), t)
        for block in self.up:
            x = block(torch.cat([F.interpolate(x, scale_factor=2), kept.pop()], 1), t)
        return self.out(x)


model = UNet().cuda()
average = copy.deepcopy(model).requires_grad_(False).eval()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4)
for step in range(5):
    x, noise = torch.rand(64, 3, 32, 32, device="cuda") * 2 - 1, torch.randn(64, 3, 32, 32, device="cuda")
    cost = torch.cdist(noise.flatten(1), x.flatten(1)) ** 2
    rows, columns = linear_sum_assignment(cost.cpu().numpy())
    noise, x = noise[torch.from_numpy(rows).cuda()], x[torch.from_numpy(columns).cuda()]
    t = torch.randn(64, device="cuda").sigmoid()
    at = t.view(-1, 1, 1, 1)
    loss = F.mse_loss(model(t, (1 - at) * noise + at * x), x - noise)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(average.parameters(), model.parameters()):
            a.lerp_(b, 0.01)
with torch.no_grad():
    path = odeint(average, torch.randn(36, 3, 32, 32, device="cuda"), torch.linspace(0, 1, 2, device="cuda"), rtol=1e-3, atol=1e-3, method="dopri5")
print(loss.item(), path[-1].std().item())
