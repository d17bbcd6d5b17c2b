"""Plain: pix2pix with a U-Net and two discriminators by scale, three optimizers, two scalers in fp16, channels-last, a buffer of old pictures, R1 every second step."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)


def down(i, o, norm=True):
    return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=not norm), nn.InstanceNorm2d(o, affine=True) if norm else nn.Identity(), nn.LeakyReLU(0.2))


def up(i, o):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, 2, 1, bias=False), nn.InstanceNorm2d(o, affine=True), nn.ReLU())


class Generator(nn.Module):
    def __init__(self, c=(64, 128, 256, 512, 512)):
        super().__init__()
        self.down = nn.ModuleList(down(a, b, i > 0) for i, (a, b) in enumerate(zip((3,) + c, c)))
        self.up = nn.ModuleList([up(512, 512), up(1024, 256), up(512, 128), up(256, 64)])
        self.last = nn.ConvTranspose2d(128, 3, 4, 2, 1)

    def forward(self, x):
        kept = []
        for d in self.down:
            kept.append(x := d(x))
        kept.pop()
        for u in self.up:
            x = torch.cat([u(x), kept.pop()], 1)
        return self.last(x).tanh()


def critic():
    return nn.Sequential(down(6, 64, False), down(64, 128), down(128, 256), nn.Conv2d(256, 1, 4, 1, 1))


make = Generator().cuda().to(memory_format=torch.channels_last)
critics = [critic().cuda().to(memory_format=torch.channels_last) for _ in range(2)]
g_opt = torch.optim.Adam(make.parameters(), lr=2e-4, betas=(0.5, 0.999))
d_opts = [torch.optim.Adam(c.parameters(), lr=1e-4, betas=(0.5, 0.999)) for c in critics]
g_scale, d_scale = torch.amp.GradScaler(), torch.amp.GradScaler()
old = []
for step in range(8):
    a = torch.rand(8, 3, 256, 256, device="cuda").contiguous(memory_format=torch.channels_last)
    b = torch.rand(8, 3, 256, 256, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.float16):
        fake = make(a)
    shown = fake.detach() if not old or random.random() < 0.5 else random.choice(old)
    old = (old + [fake.detach()])[-3:]
    for i, (c, o) in enumerate(zip(critics, d_opts)):
        size = (lambda x: x) if i == 0 else (lambda x: F.avg_pool2d(x, 2))
        with torch.autocast("cuda", dtype=torch.float16):
            right, wrong = c(torch.cat([size(a), size(b)], 1)), c(torch.cat([size(a), size(shown).to(a.dtype)], 1))
            loss = F.relu(1 - right).mean() + F.relu(1 + wrong).mean()
        if step % 2:
            real = size(b).detach().requires_grad_()
            grad, = torch.autograd.grad(c(torch.cat([size(a), real], 1)).sum(), real, create_graph=True)
            loss = loss + 5 * grad.square().sum((1, 2, 3)).mean()
        o.zero_grad()
        d_scale.scale(loss).backward()
        d_scale.step(o)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = sum(-c(torch.cat([s(a), s(fake).to(a.dtype)], 1)).mean() for c, s in zip(critics, (lambda x: x, lambda x: F.avg_pool2d(x, 2)))) + 100 * F.l1_loss(fake, b)
    g_opt.zero_grad()
    g_scale.scale(loss).backward()
    g_scale.step(g_opt)
    g_scale.update()
    d_scale.update()
