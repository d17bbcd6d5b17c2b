"""A vocoder and its judges of periods: transposed convolutions of one dimension, spectra as a loss, FP32."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
torch.manual_seed(0)
class Res(nn.Module):
    def __init__(self, c, k):
        super().__init__()
        self.convs = nn.ModuleList(weight_norm(nn.Conv1d(c, c, k, dilation=d, padding=d * (k - 1) // 2)) for d in (1, 3, 5))
    def forward(self, x):
        for conv in self.convs:
            x = x + conv(F.leaky_relu(x, 0.1))
        return x
class Up(nn.Module):
    def __init__(self, a, b, rate):
        super().__init__()
        self.up, self.res = weight_norm(nn.ConvTranspose1d(a, b, 2 * rate, rate, rate // 2)), nn.ModuleList(Res(b, k) for k in (3, 7))
    def forward(self, x):
        x = self.up(F.leaky_relu(x, 0.1))
        return sum(r(x) for r in self.res) / 2
maker = nn.Sequential(nn.Conv1d(80, 256, 7, padding=3), Up(256, 128, 8), Up(128, 64, 8), Up(64, 32, 4), nn.Conv1d(32, 1, 7, padding=3), nn.Tanh()).cuda()
class Judge(nn.Module):
    def __init__(self, period):
        super().__init__()
        self.period = period
        self.convs = nn.ModuleList(weight_norm(nn.Conv2d(a, b, (5, 1), (3, 1), (2, 0))) for a, b in ((1, 32), (32, 128), (128, 256)))
        self.last = weight_norm(nn.Conv2d(256, 1, (3, 1), 1, (1, 0)))
    def forward(self, x):
        x = F.pad(x, (0, -x.shape[-1] % self.period), "reflect")
        x, maps = x.view(len(x), 1, -1, self.period), []
        for conv in self.convs:
            x = F.leaky_relu(conv(x), 0.1)
            maps.append(x)
        return self.last(x), maps
judges = nn.ModuleList(Judge(p) for p in (2, 3, 5)).cuda()
first, second = torch.optim.AdamW(maker.parameters(), lr=2e-4, betas=(0.8, 0.99)), torch.optim.AdamW(judges.parameters(), lr=2e-4, betas=(0.8, 0.99))
window = torch.hann_window(1024, device="cuda")
def spectrum(x):
    return torch.stft(x.squeeze(1), 1024, 256, window=window, return_complex=True).abs().clamp(min=1e-5).log()
for step in range(4):
    real, fake = torch.randn(8, 1, 8192, device="cuda"), maker(torch.randn(8, 80, 32, device="cuda"))
    loss = sum(((1 - j(real)[0]) ** 2).mean() + (j(fake.detach())[0] ** 2).mean() for j in judges)
    second.zero_grad()
    loss.backward()
    second.step()
    loss = 45 * F.l1_loss(spectrum(fake), spectrum(real))
    for j in judges:
        (score, maps), (_, goal) = j(fake), j(real)
        loss = loss + ((1 - score) ** 2).mean() + 2 * sum(F.l1_loss(a, b.detach()) for a, b in zip(maps, goal))
    first.zero_grad()
    loss.backward()
    first.step()
