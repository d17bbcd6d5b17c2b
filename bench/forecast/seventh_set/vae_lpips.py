"""An autoencoder for pictures with a perceptual loss through a frozen VGG-16, a judge of patches whose weight follows from two gradients' norms, bf16
in channels-last, two Adams."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
torch.manual_seed(0)
class Res(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.a, self.b, self.n, self.m = nn.Conv2d(i, o, 3, 1, 1), nn.Conv2d(o, o, 3, 1, 1), nn.GroupNorm(16, i), nn.GroupNorm(16, o)
        self.s = nn.Identity() if i == o else nn.Conv2d(i, o, 1)
    def forward(self, x):
        return self.s(x) + self.b(F.silu(self.m(self.a(F.silu(self.n(x))))))
enc = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1), Res(64, 64), nn.Conv2d(64, 64, 3, 2, 1), Res(64, 128), nn.Conv2d(128, 128, 3, 2, 1), Res(128, 256), nn.Conv2d(256, 8, 1))
dec = nn.Sequential(nn.Conv2d(4, 256, 3, 1, 1), Res(256, 256), nn.Upsample(scale_factor=2), Res(256, 128), nn.Upsample(scale_factor=2), Res(128, 64), nn.GroupNorm(16, 64), nn.SiLU())
last = nn.Conv2d(64, 3, 3, 1, 1)
judge = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(64, 128, 4, 2, 1), nn.BatchNorm2d(128), nn.LeakyReLU(0.2), nn.Conv2d(128, 256, 4, 1, 1), nn.BatchNorm2d(256), nn.LeakyReLU(0.2), nn.Conv2d(256, 1, 4, 1, 1))
vgg = torchvision.models.vgg16().features[:23].eval().requires_grad_(False)
for m in (enc, dec, last, judge, vgg):
    m.to("cuda", memory_format=torch.channels_last)
def features(x):
    out = []
    for i, l in enumerate(vgg):
        x = l(x)
        if i in (3, 8, 15, 22):
            out.append(F.normalize(x.float(), dim=1))
    return out
ao = torch.optim.Adam([*enc.parameters(), *dec.parameters(), *last.parameters()], 4.5e-6, (0.5, 0.9))
jo = torch.optim.Adam(judge.parameters(), 4.5e-6, (0.5, 0.9))
for step in range(5):
    x = (torch.rand(7, 3, 160, 160, device="cuda") * 2 - 1).to(memory_format=torch.channels_last)
    with torch.autocast("cuda", torch.bfloat16):
        mean, logvar = enc(x).chunk(2, 1)
        logvar = logvar.float().clamp(-30, 20)
        y = last(dec(mean + torch.randn_like(mean) * (0.5 * logvar).exp()))
        close = (y - x).abs().float().mean() + sum((a - b).square().sum(1).mean() for a, b in zip(features(y), features(x)))
        wins = -judge(y).float().mean()
    w = last.weight
    g1, g2 = torch.autograd.grad(close, w, retain_graph=True)[0], torch.autograd.grad(wins, w, retain_graph=True)[0]
    weight = (g1.norm() / (g2.norm() + 1e-4)).clamp(0, 1e4).detach()
    loss = close + 0.5 * weight * wins * (step > 1) + 1e-6 * (mean.float().square() + logvar.exp() - 1 - logvar).sum() / 14
    ao.zero_grad()
    loss.backward()
    ao.step()
    jo.zero_grad()
    with torch.autocast("cuda", torch.bfloat16):
        r, f = judge(x).float(), judge(y.detach()).float()
    (0.5 * (F.relu(1 - r).mean() + F.relu(1 + f).mean())).backward()
    jo.step()
    print(loss.item(), weight.item())
