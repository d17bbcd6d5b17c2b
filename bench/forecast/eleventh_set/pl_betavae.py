"""A convolutional beta-VAE with group norms, bf16 autocast, a Gaussian by torch.distributions, AMSGrad, gradients averaged over four batches."""
import torch
from torch import nn
from torch.distributions import Normal, kl_divergence

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.skip = nn.Conv2d(i, o, 1) if i != o else nn.Identity()
        self.body = nn.Sequential(nn.GroupNorm(8, i), nn.SiLU(), nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1))

    def forward(self, x):
        return self.skip(x) + self.body(x)


class VAE(nn.Module):
    def __init__(self, w=64, z=32):
        super().__init__()
        self.enc = nn.Sequential(nn.Conv2d(3, w, 3, padding=1), Block(w, w), nn.Conv2d(w, 2 * w, 4, 2, 1), Block(2 * w, 2 * w), nn.Conv2d(2 * w, 4 * w, 4, 2, 1), Block(4 * w, 4 * w), nn.Conv2d(4 * w, 2 * z, 1))
        self.dec = nn.Sequential(nn.Conv2d(z, 4 * w, 3, padding=1), Block(4 * w, 4 * w), nn.Upsample(scale_factor=2), nn.Conv2d(4 * w, 2 * w, 3, padding=1), Block(2 * w, 2 * w), nn.Upsample(scale_factor=2), nn.Conv2d(2 * w, w, 3, padding=1), Block(w, w), nn.Conv2d(w, 3, 3, padding=1))

    def forward(self, x):
        mean, log = self.enc(x).float().chunk(2, 1)
        posterior = Normal(mean, (0.5 * log.clamp(-20, 10)).exp())
        return self.dec(posterior.rsample()), posterior


model = VAE().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=2e-4, amsgrad=True)
for step in range(4):
    for part in range(4):
        x = torch.rand(16, 3, 96, 96, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            out, posterior = model(x)
        prior = Normal(torch.zeros_like(posterior.loc), torch.ones_like(posterior.scale))
        loss = nn.functional.mse_loss(out.float(), x) + 1e-3 * kl_divergence(posterior, prior).mean()
        (loss / 4).backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
