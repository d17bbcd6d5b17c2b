"""ESRGAN: residual dense blocks enlarge pictures fourfold against a relativistic critic with spectral norms and a VGG's features; channels-last, two scalers, fp16."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)


class Dense(nn.Module):
    def __init__(self, dim=64, grow=32):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv2d(dim + i * grow, grow if i < 4 else dim, 3, 1, 1) for i in range(5))

    def forward(self, x):
        seen = [x]
        for conv in self.convs[:-1]:
            seen.append(F.leaky_relu(conv(torch.cat(seen, 1)), 0.2))
        return x + 0.2 * self.convs[-1](torch.cat(seen, 1))


class Enlarge(nn.Module):
    def __init__(self, dim=64, depth=4):
        super().__init__()
        self.first, self.body, self.last = nn.Conv2d(3, dim, 3, 1, 1), nn.Sequential(*[nn.Sequential(Dense(), Dense(), Dense()) for _ in range(depth)], nn.Conv2d(dim, dim, 3, 1, 1)), nn.Conv2d(dim, 3, 3, 1, 1)
        self.ups = nn.ModuleList(nn.Conv2d(dim, dim, 3, 1, 1) for _ in range(3))

    def forward(self, x):
        x = self.first(x)
        x = x + self.body(x)
        for up in self.ups[:2]:
            x = F.leaky_relu(up(F.interpolate(x, scale_factor=2, mode="nearest")), 0.2)
        return self.last(F.leaky_relu(self.ups[2](x), 0.2))


def critic(dim=48):
    layers = [nn.Conv2d(3, dim, 3, 1, 1), nn.LeakyReLU(0.2)]
    for i in range(4):
        layers += [spectral_norm(nn.Conv2d(dim * 2**min(i, 3), dim * 2**min(i + 1, 3), 4, 2, 1, bias=False)), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, nn.Conv2d(dim * 8, 1, 3, 1, 1))


last = dict(memory_format=torch.channels_last)
G, D = Enlarge().to("cuda", **last), critic().to("cuda", **last)
vgg = torchvision.models.vgg16(weights=None).features[:23].to("cuda", **last).eval().requires_grad_(False)
gopt, dopt = torch.optim.Adam(G.parameters(), lr=1e-4, betas=(0.9, 0.99)), torch.optim.Adam(D.parameters(), lr=1e-4, betas=(0.9, 0.99))
gscale, dscale = torch.amp.GradScaler("cuda"), torch.amp.GradScaler("cuda")
bce = F.binary_cross_entropy_with_logits
for step in range(5):
    real = torch.rand(12, 3, 160, 160, device="cuda").contiguous(**last)
    small = F.interpolate(real, scale_factor=0.25, mode="bicubic", antialias=True)
    D.requires_grad_(False)
    with torch.autocast("cuda", dtype=torch.float16):
        fake = G(small)
        r, f = D(real).detach(), D(fake)
        g = F.l1_loss(fake, real) * 1e-2 + F.l1_loss(vgg(fake), vgg(real)) + 5e-3 * (bce(r - f.mean(), torch.zeros_like(r)) + bce(f - r.mean(), torch.ones_like(f))) / 2
    gscale.scale(g).backward()
    gscale.step(gopt)
    gscale.update()
    gopt.zero_grad()
    D.requires_grad_(True)
    with torch.autocast("cuda", dtype=torch.float16):
        r, f = D(real), D(fake.detach())
        d = (bce(r - f.mean(), torch.ones_like(r)) + bce(f - r.mean(), torch.zeros_like(f))) / 2
    dscale.scale(d).backward()
    dscale.step(dopt)
    dscale.update()
    dopt.zero_grad()
G.eval()
with torch.inference_mode(), torch.autocast("cuda", dtype=torch.float16):
    print(g.item(), d.item(), G(torch.rand(1, 3, 200, 200, device="cuda").contiguous(**last)).shape)
