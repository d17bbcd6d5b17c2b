"""EDM: a U-Net with attention preconditioned as Karras does, classes dropped for guidance, channels-last bf16, averaged weights by swa_utils, 9 steps of Heun."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
torch.manual_seed(0)
class Res(nn.Module):
    def __init__(self, a, b, attend=False):
        super().__init__()
        self.n1, self.c1, self.n2, self.c2 = nn.GroupNorm(8, a), nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.Conv2d(b, b, 3, padding=1)
        self.emb, self.skip = nn.Linear(256, 2 * b), nn.Conv2d(a, b, 1) if a != b else nn.Identity()
        self.qkv = nn.Conv2d(b, 3 * b, 1) if attend else None
    def forward(self, x, e):
        h = self.c1(F.silu(self.n1(x)))
        scale, shift = self.emb(e)[:, :, None, None].chunk(2, 1)
        h = self.skip(x) + self.c2(F.silu(self.n2(h) * (1 + scale) + shift))
        if self.qkv is not None:
            q, k, v = self.qkv(h).flatten(2).transpose(1, 2).unflatten(2, (3, -1)).unbind(2)
            h = h + F.scaled_dot_product_attention(q[:, None], k[:, None], v[:, None])[:, 0].transpose(1, 2).reshape(h.shape)
        return h
class Net(nn.Module):
    def __init__(self, c=72):
        super().__init__()
        self.first, self.noise, self.classes = nn.Conv2d(3, c, 3, padding=1), nn.Sequential(nn.Linear(64, 256), nn.SiLU(), nn.Linear(256, 256)), nn.Embedding(11, 256)
        self.down = nn.ModuleList((Res(c, c), Res(c, 2 * c), Res(2 * c, 2 * c, True), Res(2 * c, 3 * c, True)))
        self.up = nn.ModuleList((Res(3 * c + 3 * c, 2 * c, True), Res(2 * c + 2 * c, 2 * c, True), Res(2 * c + 2 * c, c), Res(c + c, c)))
        self.last = nn.Conv2d(c, 3, 3, padding=1)
    def forward(self, x, sigma, label):
        s = sigma.view(-1, 1, 1, 1)
        f = sigma.log()[:, None] / 4 * torch.pow(1000.0, torch.arange(32, device=x.device) / 32)
        e = self.noise(torch.cat((f.sin(), f.cos()), 1)) + self.classes(label)
        h, kept = self.first(x / (s ** 2 + 0.25).sqrt()), []
        for i, block in enumerate(self.down):
            h = block(h, e)
            kept.append(h)
            h = F.avg_pool2d(h, 2) if i in (0, 2) else h
        for i, block in enumerate(self.up):
            k = kept.pop()
            h = F.interpolate(h, size=k.shape[2:]) if h.shape[2:] != k.shape[2:] else h
            h = block(torch.cat((h, k), 1), e)
        return x * 0.25 / (s ** 2 + 0.25) + self.last(h).float() * s * 0.5 / (s ** 2 + 0.25).sqrt()
net = Net().cuda().to(memory_format=torch.channels_last)
average = AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.Adam(net.parameters(), 2e-4, betas=(0.9, 0.99))
for _ in range(4):
    x, label = torch.rand(18, 3, 44, 44, device="cuda").mul_(2).sub_(1).to(memory_format=torch.channels_last), torch.randint(0, 10, (18,), device="cuda")
    label = torch.where(torch.rand(18, device="cuda") < 0.1, 10, label)
    sigma = (torch.randn(18, device="cuda") * 1.2 - 1.2).exp()
    with torch.autocast("cuda", torch.bfloat16):
        out = net(x + torch.randn_like(x) * sigma.view(-1, 1, 1, 1), sigma, label)
    loss = ((sigma ** 2 + 0.25) / (0.5 * sigma) ** 2).view(-1, 1, 1, 1).mul((out - x) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    average.update_parameters(net)
    print(loss.item())
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    levels = torch.cat((torch.linspace(80 ** (1 / 7), 0.002 ** (1 / 7), 9).pow(7), torch.zeros(1))).cuda()
    x, label = torch.randn(25, 3, 44, 44, device="cuda") * 80, torch.randint(0, 10, (25,), device="cuda")
    def guided(x, s):
        both = average(torch.cat((x, x)), s.expand(50), torch.cat((label, torch.full_like(label, 10))))
        return both[25:] + 1.5 * (both[:25] - both[25:])
    for a, b in zip(levels[:-1], levels[1:]):
        d = (x - guided(x, a)) / a
        new = x + (b - a) * d
        if b.item() > 0:
            new = x + (b - a) * (d + (new - guided(new, b)) / b) / 2
        x = new
    print(x.shape)
