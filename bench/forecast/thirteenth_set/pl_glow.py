"""Glow: multi-scale flow with actnorm that looks at its first batch, invertible 1 x 1 convolutions by slogdet, couplings checkpointed by hand, samples at the end."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

torch.manual_seed(0)


class ActNorm(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.bias, self.scale = nn.Parameter(torch.zeros(1, channels, 1, 1)), nn.Parameter(torch.zeros(1, channels, 1, 1))
        self.register_buffer("ready", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x):
        if self.ready.item() == 0:
            with torch.no_grad():
                self.bias.copy_(-x.mean((0, 2, 3), keepdim=True))
                self.scale.copy_(-torch.log(x.std((0, 2, 3), keepdim=True) + 1e-6))
                self.ready.fill_(1)
        return (x + self.bias) * self.scale.exp(), x.shape[2] * x.shape[3] * self.scale.sum()

    def back(self, y):
        return y * (-self.scale).exp() - self.bias


class Mix(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.linalg.qr(torch.randn(channels, channels))[0])

    def forward(self, x):
        return F.conv2d(x, self.weight[..., None, None]), x.shape[2] * x.shape[3] * torch.slogdet(self.weight)[1]

    def back(self, y):
        return F.conv2d(y, torch.inverse(self.weight)[..., None, None])


class Coupling(nn.Module):
    def __init__(self, channels, hidden=256):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(channels // 2, hidden, 3, 1, 1), nn.ReLU(), nn.Conv2d(hidden, hidden, 1), nn.ReLU(), nn.Conv2d(hidden, channels, 3, 1, 1))
        nn.init.zeros_(self.net[-1].weight)

    def parts(self, a):
        shift, scale = self.net(a).chunk(2, 1)
        return shift, torch.sigmoid(scale + 2)

    def forward(self, x):
        a, b = x.chunk(2, 1)
        shift, scale = checkpoint(self.parts, a, use_reentrant=False) if self.training else self.parts(a)
        return torch.cat([a, (b + shift) * scale], 1), scale.log().flatten(1).sum(1)

    def back(self, y):
        a, b = y.chunk(2, 1)
        shift, scale = self.parts(a)
        return torch.cat([a, b / scale - shift], 1)


class Glow(nn.Module):
    def __init__(self, levels=3, depth=8):
        super().__init__()
        self.levels, channels = nn.ModuleList(), 3
        for level in range(levels):
            channels *= 4
            self.levels.append(nn.ModuleList(m for _ in range(depth) for m in (ActNorm(channels), Mix(channels), Coupling(channels))))
            channels //= 2

    def forward(self, x):
        total, outs = x.new_zeros(len(x)), []
        for level in self.levels:
            x = F.pixel_unshuffle(x, 2)
            for layer in level:
                x, log = layer(x)
                total = total + log
            x, z = x.chunk(2, 1)
            outs.append(z)
        return [*outs, x], total

    def sample(self, n, size):
        x = None
        for k, level in reversed(list(enumerate(self.levels))):
            side, channels = size >> (k + 1), 6 * 2**k
            x = torch.randn(n, channels, side, side, device="cuda") * 0.7 if x is None else x
            x = torch.cat([x, torch.randn(n, channels, side, side, device="cuda") * 0.7], 1)
            for layer in reversed(level):
                x = layer.back(x)
            x = F.pixel_shuffle(x, 2)
        return x


model = Glow().cuda()
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-3)
for step in range(4):
    x = torch.rand(48, 3, 64, 64, device="cuda") + torch.rand(48, 3, 64, 64, device="cuda") / 256 - 0.5
    zs, log = model(x)
    prior = sum((-0.5 * (z.pow(2) + math.log(2 * math.pi))).flatten(1).sum(1) for z in zs)
    loss = -(prior + log).mean() / (3 * 64 * 64 * math.log(2)) + 8
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 5.0)
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    print(loss.item(), model.sample(64, 64).shape)
