"""DDP whose ranks have batches of different sizes (a faster and a slower card), weighted by them; a U-Net for segmentation; rank 0 alone keeps an EMA and evaluates."""
import copy
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP


def double(a, b):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), nn.GroupNorm(8, b), nn.SiLU(), nn.Conv2d(b, b, 3, padding=1, bias=False), nn.GroupNorm(8, b), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, w=(48, 96, 192, 384)):
        super().__init__()
        self.down = nn.ModuleList(double(a, b) for a, b in zip((3, *w), w))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(w, w[1:]))
        self.join = nn.ModuleList(double(2 * a, a) for a in w[:-1])
        self.out = nn.Conv2d(w[0], 21, 1)

    def forward(self, x):
        skips = []
        for i, d in enumerate(self.down):
            x = d(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for up, join, skip in zip(reversed(self.ups), reversed(self.join), reversed(skips[:-1])):
            x = join(torch.cat([up(x), skip], 1))
        return self.out(x)


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
batch = (12, 7)[rank]
net = UNet().cuda()
ema = copy.deepcopy(net).requires_grad_(False).eval() if rank == 0 else None
model = DDP(net, device_ids=[rank])
opt = torch.optim.AdamW(model.parameters(), 1e-3)
total = torch.tensor(float(batch), device="cuda")
dist.all_reduce(total)
for step in range(8):
    x, y = torch.randn(batch, 3, 192, 192, device="cuda"), torch.randint(0, 21, (batch, 192, 192), device="cuda")
    loss = F.cross_entropy(model(x), y) * batch * 2 / total
    opt.zero_grad()
    loss.backward()
    opt.step()
    if rank == 0:
        with torch.no_grad():
            for a, b in zip(ema.parameters(), net.parameters()):
                a.lerp_(b, 0.01)
            if step % 4 == 3:
                print(step, F.cross_entropy(ema(x), y).item())
    dist.barrier()
dist.destroy_process_group()
