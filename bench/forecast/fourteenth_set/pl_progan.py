"""A GAN that grows from 8 to 64: layers faded in, equalised rates, pixel norms, the minibatch's deviation, WGAN-GP with drift, batches that shrink as pictures grow."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Even(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.layer = layer
        nn.init.normal_(layer.weight)
        self.scale = math.sqrt(2 / layer.weight[0].numel())

    def forward(self, x):
        return self.layer(x * self.scale)


conv = lambda a, b, k=3: Even(nn.Conv2d(a, b, k, padding=k // 2))
WIDTHS = [512, 512, 256, 128, 64]


class Norm(nn.Module):
    def forward(self, x):
        return x / (x.pow(2).mean(1, keepdim=True) + 1e-8).sqrt()


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Sequential(Norm(), Even(nn.ConvTranspose2d(256, 512, 4)), nn.LeakyReLU(0.2), Norm(), conv(512, 512), nn.LeakyReLU(0.2), Norm())
        self.blocks = nn.ModuleList(nn.Sequential(nn.Upsample(scale_factor=2), conv(a, b), nn.LeakyReLU(0.2), Norm(), conv(b, b), nn.LeakyReLU(0.2), Norm()) for a, b in zip(WIDTHS, WIDTHS[1:]))
        self.colours = nn.ModuleList(conv(c, 3, 1) for c in WIDTHS)

    def forward(self, z, level, fade):
        x = self.first(z[:, :, None, None])
        for block in self.blocks[:level]:
            before, x = x, block(x)
        return fade * self.colours[level](x) + (1 - fade) * F.interpolate(self.colours[level - 1](before), scale_factor=2)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.colours = nn.ModuleList(conv(3, c, 1) for c in WIDTHS)
        self.blocks = nn.ModuleList(nn.Sequential(conv(b, b), nn.LeakyReLU(0.2), conv(b, a), nn.LeakyReLU(0.2), nn.AvgPool2d(2)) for a, b in zip(WIDTHS, WIDTHS[1:]))
        self.last = nn.Sequential(conv(513, 512), nn.LeakyReLU(0.2), Even(nn.Conv2d(512, 512, 4)), nn.LeakyReLU(0.2), nn.Flatten(), Even(nn.Linear(512, 1)))

    def forward(self, x, level, fade):
        y = self.blocks[level - 1](F.leaky_relu(self.colours[level](x), 0.2))
        y = fade * y + (1 - fade) * F.leaky_relu(self.colours[level - 1](F.avg_pool2d(x, 2)), 0.2)
        for block in reversed(self.blocks[:level - 1]):
            y = block(y)
        spread = y.var(0, unbiased=False).sqrt().mean().expand(len(y), 1, 4, 4)
        return self.last(torch.cat([y, spread], 1))


generator, critic = Generator().cuda(), Critic().cuda()
optimizers = [torch.optim.Adam(m.parameters(), lr=1e-3, betas=(0.0, 0.99)) for m in (generator, critic)]
for level, batch in ((1, 64), (2, 48), (3, 24), (4, 12)):
    for step in range(4):
        fade = min(1.0, (step + 1) / 3)
        real = torch.rand(batch, 3, 4 * 2 ** level, 4 * 2 ** level, device="cuda") * 2 - 1
        fake = generator(torch.randn(batch, 256, device="cuda"), level, fade).detach()
        mix = torch.rand(batch, 1, 1, 1, device="cuda")
        between = (mix * real + (1 - mix) * fake).requires_grad_(True)
        slope = torch.autograd.grad(critic(between, level, fade).sum(), between, create_graph=True)[0]
        told = critic(real, level, fade)
        loss = critic(fake, level, fade).mean() - told.mean() + 10 * (slope.flatten(1).norm(2, dim=1) - 1).pow(2).mean() + 1e-3 * told.pow(2).mean()
        optimizers[1].zero_grad()
        loss.backward()
        optimizers[1].step()
        made = -critic(generator(torch.randn(batch, 256, device="cuda"), level, fade), level, fade).mean()
        optimizers[0].zero_grad()
        made.backward()
        optimizers[0].step()
    print(level, loss.item(), made.item())
