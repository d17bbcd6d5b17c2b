"""A Wasserstein GAN with gradient penalty on pictures of 64 x 64: gradients of gradients through convolutions and layer norms, five critic steps each, an EMA."""
import copy
import torch
import torch.nn as nn

torch.manual_seed(0)


def up(a, b):
    return nn.Sequential(nn.Upsample(scale_factor=2), nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU())


def down(a, b, size):
    return nn.Sequential(nn.Conv2d(a, b, 5, stride=2, padding=2), nn.LayerNorm([b, size, size]), nn.LeakyReLU(0.2))


generator = nn.Sequential(nn.Linear(128, 512 * 16), nn.Unflatten(1, (512, 4, 4)), up(512, 256), up(256, 128), up(128, 64), up(64, 64), nn.Conv2d(64, 3, 3, padding=1), nn.Tanh()).cuda()
critic = nn.Sequential(nn.Conv2d(3, 64, 5, stride=2, padding=2), nn.LeakyReLU(0.2), down(64, 128, 16), down(128, 256, 8), down(256, 512, 4), nn.Flatten(), nn.Linear(512 * 16, 1)).cuda()
average = copy.deepcopy(generator).requires_grad_(False)
g_opt = torch.optim.Adam(generator.parameters(), lr=1e-4, betas=(0.0, 0.9))
c_opt = torch.optim.Adam(critic.parameters(), lr=1e-4, betas=(0.0, 0.9))
batch = 128
for step in range(3):
    for turn in range(5):
        real = torch.rand(batch, 3, 64, 64, device="cuda") * 2 - 1
        with torch.no_grad():
            fake = generator(torch.randn(batch, 128, device="cuda"))
        mix = torch.rand(batch, 1, 1, 1, device="cuda")
        between = (mix * real + (1 - mix) * fake).requires_grad_()
        slope, = torch.autograd.grad(critic(between).sum(), between, create_graph=True)
        penalty = ((slope.flatten(1).norm(2, dim=1) - 1) ** 2).mean()
        c_loss = critic(fake).mean() - critic(real).mean() + 10 * penalty
        c_opt.zero_grad()
        c_loss.backward()
        c_opt.step()
    g_loss = -critic(generator(torch.randn(batch, 128, device="cuda"))).mean()
    g_opt.zero_grad()
    g_loss.backward()
    g_opt.step()
    with torch.no_grad():
        for a, p in zip(average.parameters(), generator.parameters()):
            a.lerp_(p, 0.001)
print(c_loss.item(), g_loss.item())
