"""Latent diffusion: pictures through a frozen VAE of diffusers in fp16 slices, a DiT by hand with adaptive norms, v-prediction, weights by min-SNR,
classes dropped, averaged weights; then samples with guidance."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from diffusers import AutoencoderKL
torch.manual_seed(0)
vae = AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3, block_out_channels=(64, 128, 256), layers_per_block=1, latent_channels=4).cuda().half().eval().requires_grad_(False)
vae.enable_slicing()
D = 512
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ada, self.qkv, self.out = nn.Linear(D, 6 * D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU("tanh"), nn.Linear(4 * D, D))
    def forward(self, x, c):
        sa, ga, ha, sb, gb, hb = self.ada(F.silu(c))[:, None].chunk(6, -1)
        q, k, v = self.qkv(F.layer_norm(x, (D,)) * (1 + sa) + ha).unflatten(-1, (3, 8, 64)).permute(2, 0, 3, 1, 4)
        x = x + ga * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + gb * self.mlp(F.layer_norm(x, (D,)) * (1 + sb) + hb)
class DiT(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.pos, self.label = nn.Conv2d(4, D, 2, 2), nn.Parameter(torch.randn(1, 576, D) * 0.02), nn.Embedding(1001, D)
        self.time, self.blocks, self.out = nn.Sequential(nn.Linear(256, D), nn.SiLU(), nn.Linear(D, D)), nn.ModuleList(Block() for _ in range(8)), nn.Linear(D, 16)
    def forward(self, x, t, y):
        f = t[:, None].float() * torch.exp(-9.2 * torch.arange(128, device=t.device) / 128)
        c = self.time(torch.cat([f.cos(), f.sin()], 1)) + self.label(y)
        b, _, h, w = x.shape
        x = self.inp(x).flatten(2).transpose(1, 2) + self.pos
        for block in self.blocks:
            x = block(x, c)
        return self.out(x).view(b, h // 2, w // 2, 2, 2, 4).permute(0, 5, 1, 3, 2, 4).reshape(b, 4, h, w)
model = DiT().cuda()
ema = copy.deepcopy(model).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4, weight_decay=0.0)
bar = torch.cos((torch.arange(1000, device="cuda") / 1000 + 0.008) / 1.008 * torch.pi / 2) ** 2
for step in range(5):
    x, y = torch.rand(16, 3, 192, 192, device="cuda") * 2 - 1, torch.randint(0, 1000, (16,), device="cuda")
    with torch.no_grad():
        z = vae.encode(x.half()).latent_dist.sample().float() * 0.18
    y = torch.where(torch.rand(16, device="cuda") < 0.1, 1000, y)
    t, noise = torch.randint(0, 1000, (16,), device="cuda"), torch.randn_like(z)
    a = bar[t].view(-1, 1, 1, 1)
    with torch.autocast("cuda", torch.bfloat16):
        out = model(a.sqrt() * z + (1 - a).sqrt() * noise, t, y)
    snr = a.flatten() / (1 - a.flatten())
    loss = ((out.float() - (a.sqrt() * noise - (1 - a).sqrt() * z)) ** 2).mean((1, 2, 3)) * snr.clamp(max=5) / (snr + 1)
    loss.mean().backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for p, q in zip(ema.parameters(), model.parameters()):
            p.lerp_(q, 1e-3)
with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
    z, y = torch.randn(4, 4, 48, 48, device="cuda"), torch.tensor([1, 2, 3, 4] + [1000] * 4, device="cuda")
    for t in range(999, 0, -200):
        c, n = ema(torch.cat([z, z]), torch.full((8,), t, device="cuda"), y).float().chunk(2)
        v = n + 4 * (c - n)
        a, b = bar[t], bar[max(t - 200, 0)]
        z = b.sqrt() * (a.sqrt() * z - (1 - a).sqrt() * v) + (1 - b).sqrt() * (a.sqrt() * v + (1 - a).sqrt() * z)
    print(loss.mean().item(), vae.decode((z / 0.18).half()).sample.shape)
