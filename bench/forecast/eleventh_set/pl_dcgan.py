"""A DCGAN as in the tutorial, with spectral norms and a hinge loss; two optimizers, pictures kept on the host."""
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

torch.manual_seed(0)
up = lambda i, o, s=2, p=1: nn.Sequential(nn.ConvTranspose2d(i, o, 4, s, p, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))
down = lambda i, o: nn.Sequential(spectral_norm(nn.Conv2d(i, o, 4, 2, 1)), nn.LeakyReLU(0.2, True))
G = nn.Sequential(up(128, 512, 1, 0), up(512, 256), up(256, 128), up(128, 64), nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda()
D = nn.Sequential(down(3, 64), down(64, 128), down(128, 256), down(256, 512), nn.Conv2d(512, 1, 4)).cuda()
opt_g = torch.optim.Adam(G.parameters(), 2e-4, betas=(0.5, 0.999))
opt_d = torch.optim.Adam(D.parameters(), 2e-4, betas=(0.5, 0.999))
kept = []
fixed = torch.randn(64, 128, 1, 1, device="cuda")
for step in range(6):
    real = torch.rand(128, 3, 64, 64).mul(2).sub(1).cuda()
    fake = G(torch.randn(128, 128, 1, 1, device="cuda"))
    loss_d = nn.functional.relu(1 - D(real)).mean() + nn.functional.relu(1 + D(fake.detach())).mean()
    opt_d.zero_grad()
    loss_d.backward()
    opt_d.step()
    loss_g = -D(fake).mean()
    opt_g.zero_grad()
    loss_g.backward()
    opt_g.step()
    if step % 3 == 0:
        with torch.no_grad():
            kept.append(G(fixed).cpu())
print(loss_d.item(), loss_g.item(), len(kept))
