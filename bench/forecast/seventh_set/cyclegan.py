"""CycleGAN: two generators of residual blocks with reflected borders and instance norm, two judges of patches, a pool of old pictures, two Adams over
four networks, FP32."""
import itertools
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
random.seed(0)
class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.f = nn.Sequential(nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c), nn.ReLU(True), nn.ReflectionPad2d(1), nn.Conv2d(c, c, 3), nn.InstanceNorm2d(c))
    def forward(self, x):
        return x + self.f(x)
def G():
    m = [nn.ReflectionPad2d(3), nn.Conv2d(3, 48, 7), nn.InstanceNorm2d(48), nn.ReLU(True)]
    for c in (48, 96):
        m += [nn.Conv2d(c, 2 * c, 3, 2, 1), nn.InstanceNorm2d(2 * c), nn.ReLU(True)]
    m += [Res(192) for _ in range(6)]
    for c in (192, 96):
        m += [nn.ConvTranspose2d(c, c // 2, 3, 2, 1, output_padding=1), nn.InstanceNorm2d(c // 2), nn.ReLU(True)]
    return nn.Sequential(*m, nn.ReflectionPad2d(3), nn.Conv2d(48, 3, 7), nn.Tanh()).cuda()
def D():
    m = [nn.Conv2d(3, 48, 4, 2, 1), nn.LeakyReLU(0.2, True)]
    for c, s in ((48, 2), (96, 2), (192, 1)):
        m += [nn.Conv2d(c, 2 * c, 4, s, 1), nn.InstanceNorm2d(2 * c), nn.LeakyReLU(0.2, True)]
    return nn.Sequential(*m, nn.Conv2d(384, 1, 4, 1, 1)).cuda()
class Pool:
    def __init__(self):
        self.kept = []
    def __call__(self, images):
        out = []
        for x in images:
            x = x[None].detach()
            if len(self.kept) < 7:
                self.kept.append(x)
            elif random.random() < 0.5:
                i = random.randrange(7)
                x, self.kept[i] = self.kept[i].clone(), x
            out.append(x)
        return torch.cat(out)
ab, ba, da, db = G(), G(), D(), D()
go = torch.optim.Adam(itertools.chain(ab.parameters(), ba.parameters()), 2e-4, (0.5, 0.999))
do = torch.optim.Adam(itertools.chain(da.parameters(), db.parameters()), 2e-4, (0.5, 0.999))
schedules = [torch.optim.lr_scheduler.LambdaLR(o, lambda e: 1 - max(0, e - 2) / 6) for o in (go, do)]
pa, pb = Pool(), Pool()
for step in range(6):
    a, b = torch.rand(2, 3, 144, 144).cuda() * 2 - 1, torch.rand(2, 3, 144, 144).cuda() * 2 - 1
    fb, fa = ab(a), ba(b)
    ra, rb = ba(fb), ab(fa)
    for p in itertools.chain(da.parameters(), db.parameters()):
        p.requires_grad_(False)
    sb, sa = db(fb), da(fa)
    loss = F.mse_loss(sb, torch.ones_like(sb)) + F.mse_loss(sa, torch.ones_like(sa)) + 10 * (F.l1_loss(ra, a) + F.l1_loss(rb, b)) + 5 * (F.l1_loss(ba(a), a) + F.l1_loss(ab(b), b))
    go.zero_grad()
    loss.backward()
    go.step()
    for p in itertools.chain(da.parameters(), db.parameters()):
        p.requires_grad_(True)
    do.zero_grad()
    for d, real, fake in ((da, a, pa(fa)), (db, b, pb(fb))):
        r, f = d(real), d(fake)
        ((F.mse_loss(r, torch.ones_like(r)) + F.mse_loss(f, torch.zeros_like(f))) / 2).backward()
    do.step()
    for s in schedules:
        s.step()
    print(loss.item())
