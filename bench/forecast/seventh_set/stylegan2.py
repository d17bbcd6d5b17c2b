"""StyleGAN 2: weights modulated by style through grouped convolutions, noise, a blur after upsampling, R1 every fourth step and path lengths every
other, averaged weights, FP32."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
class Modulated(nn.Module):
    def __init__(self, i, o, k=3, demod=True, up=False):
        super().__init__()
        self.w, self.style, self.demod, self.up = nn.Parameter(torch.randn(o, i, k, k)), nn.Linear(256, i), demod, up
        self.strength, self.bias = nn.Parameter(torch.zeros(1)), nn.Parameter(torch.zeros(o))
        f = torch.tensor([1., 3, 3, 1])
        self.register_buffer("blur", (f[:, None] * f / 16)[None, None])
    def forward(self, x, w):
        b, i, h, _ = x.shape
        k = self.w * (self.style(w) + 1)[:, None, :, None, None] / (i ** 0.5 * 3)
        if self.demod:
            k = k * (k.square().sum((2, 3, 4), keepdim=True) + 1e-8).rsqrt()
        if self.up:
            x = F.conv_transpose2d(x.reshape(1, b * i, h, h), k.transpose(1, 2).reshape(b * i, -1, *k.shape[3:]), stride=2, groups=b)
            x = F.conv2d(F.pad(x.view(-1, 1, *x.shape[2:]), (1, 1, 1, 1)), self.blur).view(b, -1, 2 * h, 2 * h)
        else:
            x = F.conv2d(x.reshape(1, b * i, h, h), k.reshape(-1, *k.shape[2:]), padding=k.shape[-1] // 2, groups=b).view(b, -1, h, h)
        if self.demod:
            x = F.leaky_relu(x + self.strength * torch.randn_like(x[:, :1]) + self.bias[:, None, None], 0.2) * 2 ** 0.5
        return x
class G(nn.Module):
    def __init__(self, widths=(256, 256, 128, 64, 32)):
        super().__init__()
        self.map = nn.Sequential(*[l for _ in range(6) for l in (nn.Linear(256, 256), nn.LeakyReLU(0.2))])
        self.const, self.first = nn.Parameter(torch.randn(1, widths[0], 4, 4)), Modulated(widths[0], widths[0])
        self.a = nn.ModuleList(Modulated(i, o, up=True) for i, o in zip(widths, widths[1:]))
        self.b = nn.ModuleList(Modulated(o, o) for o in widths[1:])
        self.rgb = nn.ModuleList(Modulated(o, 3, 1, demod=False) for o in widths[1:])
    def forward(self, z):
        w = self.map(z)
        x, out = self.first(self.const.expand(len(z), -1, -1, -1), w), None
        for a, b, rgb in zip(self.a, self.b, self.rgb):
            x = b(a(x, w), w)
            y = rgb(x, w)
            out = y if out is None else y + F.interpolate(out, scale_factor=2, mode="bilinear")
        return out, w
class D(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256, 256)):
        super().__init__()
        self.inp, self.out = nn.Conv2d(3, 32, 1), nn.Sequential(nn.Conv2d(257, 256, 3, padding=1), nn.LeakyReLU(0.2), nn.Flatten(), nn.Linear(4096, 1))
        self.convs = nn.ModuleList(nn.Sequential(nn.Conv2d(i, i, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(i, o, 3, 2, 1), nn.LeakyReLU(0.2)) for i, o in zip(widths, widths[1:]))
        self.skips = nn.ModuleList(nn.Conv2d(i, o, 1, 2) for i, o in zip(widths, widths[1:]))
    def forward(self, x):
        x = F.leaky_relu(self.inp(x), 0.2)
        for c, s in zip(self.convs, self.skips):
            x = (c(x) + s(x)) / 2 ** 0.5
        spread = x.view(4, -1, *x.shape[1:]).var(0, unbiased=False).add(1e-8).sqrt().mean((1, 2, 3))
        return self.out(torch.cat([x, spread.repeat(4)[:, None, None, None].expand(-1, 1, 4, 4)], 1))
g, d = G().cuda(), D().cuda()
average, path = copy.deepcopy(g).requires_grad_(False), torch.zeros((), device="cuda")
go, do = torch.optim.Adam(g.parameters(), 2e-3, (0.0, 0.99)), torch.optim.Adam(d.parameters(), 2e-3, (0.0, 0.99))
for step in range(6):
    real = torch.randn(16, 3, 64, 64, device="cuda", requires_grad=step % 4 == 0)
    with torch.no_grad():
        fake = g(torch.randn(16, 256, device="cuda"))[0]
    says = d(real)
    loss = F.softplus(d(fake)).mean() + F.softplus(-says).mean()
    if step % 4 == 0:
        loss = loss + 20 * torch.autograd.grad(says.sum(), real, create_graph=True)[0].square().sum((1, 2, 3)).mean()
    do.zero_grad()
    loss.backward()
    do.step()
    fake, w = g(torch.randn(16, 256, device="cuda"))
    loss = F.softplus(-d(fake)).mean()
    if step % 2 == 0:
        grad, = torch.autograd.grad((fake * torch.randn_like(fake) / 64).sum(), w, create_graph=True)
        length = grad.square().sum(1).sqrt()
        path = path.lerp(length.mean().detach(), 0.01)
        loss = loss + 4 * (length - path).square().mean()
    go.zero_grad()
    loss.backward()
    go.step()
    with torch.no_grad():
        torch._foreach_lerp_(list(average.parameters()), list(g.parameters()), 0.01)
print(loss.item(), path.item(), average(torch.randn(4, 256, device="cuda"))[0].shape)
