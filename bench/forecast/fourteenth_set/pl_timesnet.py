"""TimesNet: the strongest periods of a series, found by FFT and read on the host, fold it into pictures for inception blocks; forecasts, an early stop, a mean by hand."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Inception(nn.Module):
    def __init__(self, a, b, kernels=4):
        super().__init__()
        self.kernels = nn.ModuleList(nn.Conv2d(a, b, 2 * i + 1, padding=i) for i in range(kernels))

    def forward(self, x):
        return torch.stack([k(x) for k in self.kernels], -1).mean(-1)


class TimesBlock(nn.Module):
    def __init__(self, length, d=64, wide=128, k=3):
        super().__init__()
        self.length, self.k = length, k
        self.conv = nn.Sequential(Inception(d, wide), nn.GELU(), Inception(wide, d))

    def forward(self, x):
        b, t, n = x.size()
        spectrum = torch.fft.rfft(x, dim=1)
        strength = spectrum.abs().mean(0).mean(-1)
        strength[0] = 0
        top = torch.topk(strength, self.k)[1].detach().cpu().numpy()
        periods, weights = t // top, spectrum.abs().mean(-1)[:, top]
        kept = []
        for period in periods:
            if t % period != 0:
                length = (t // period + 1) * period
                out = torch.cat([x, torch.zeros(b, length - t, n, device=x.device)], 1)
            else:
                length, out = t, x
            out = out.reshape(b, length // period, period, n).permute(0, 3, 1, 2).contiguous()
            out = self.conv(out).permute(0, 2, 3, 1).reshape(b, -1, n)
            kept.append(out[:, :t, :])
        weights = F.softmax(weights, 1).unsqueeze(1).unsqueeze(1)
        return torch.sum(torch.stack(kept, -1) * weights, -1) + x


class TimesNet(nn.Module):
    def __init__(self, series=7, past=96, ahead=96, d=64, layers=2):
        super().__init__()
        self.value, self.longer, self.head = nn.Conv1d(series, d, 3, padding=1, padding_mode="circular", bias=False), nn.Linear(past, past + ahead), nn.Linear(d, series)
        self.blocks, self.norm, self.ahead = nn.ModuleList(TimesBlock(past + ahead, d) for _ in range(layers)), nn.LayerNorm(d), ahead

    def forward(self, x):
        mean = x.mean(1, keepdim=True).detach()
        x = x - mean
        std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
        y = self.longer(self.value((x / std).transpose(1, 2))).transpose(1, 2)
        for block in self.blocks:
            y = self.norm(block(y))
        return (self.head(y) * std + mean)[:, -self.ahead:]


model = TimesNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
best, waited = np.inf, 0
time = torch.arange(192, device="cuda")[None, :, None] / 192
for epoch in range(3):
    losses = []
    for step in range(4):
        series = torch.sin(2 * torch.pi * time * torch.tensor([4, 8, 12, 4, 8, 12, 24], device="cuda") + torch.rand(32, 1, 7, device="cuda")) + 0.1 * torch.randn(32, 192, 7, device="cuda")
        loss = F.mse_loss(model(series[:, :96]), series[:, 96:])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    with torch.no_grad():
        held = np.average([F.mse_loss(model(torch.randn(32, 96, 7, device="cuda")), torch.randn(32, 96, 7, device="cuda")).item() for _ in range(2)])
    model.train()
    waited = 0 if held < best else waited + 1
    best = min(best, held)
    print(epoch, np.average(losses), held)
    if waited >= 3:
        break
