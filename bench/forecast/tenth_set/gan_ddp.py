"""A GAN with two models in DDP: hinge loss, spectral norm in the critic, two critic steps a generator step, R1 penalty every fourth step, an averaged generator."""
import copy
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.parametrizations import spectral_norm as sn


def generator(c=256):
    layers = [nn.ConvTranspose2d(128, 2 * c, 4), nn.BatchNorm2d(2 * c), nn.ReLU()]
    for a, b in ((2 * c, c), (c, c // 2), (c // 2, c // 4)):
        layers += [nn.ConvTranspose2d(a, b, 4, 2, 1), nn.BatchNorm2d(b), nn.ReLU()]
    return nn.Sequential(*layers, nn.ConvTranspose2d(c // 4, 3, 4, 2, 1), nn.Tanh())


def critic(c=64):
    layers = [sn(nn.Conv2d(3, c, 4, 2, 1)), nn.LeakyReLU(0.2)]
    for a, b in ((c, 2 * c), (2 * c, 4 * c), (4 * c, 8 * c)):
        layers += [sn(nn.Conv2d(a, b, 4, 2, 1)), nn.LeakyReLU(0.2)]
    return nn.Sequential(*layers, sn(nn.Conv2d(8 * c, 1, 4)), nn.Flatten())


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
g = DDP(generator().cuda(), device_ids=[rank], broadcast_buffers=False)
d = DDP(critic().cuda(), device_ids=[rank], broadcast_buffers=False)
average = copy.deepcopy(g.module).requires_grad_(False)
go, do = torch.optim.Adam(g.parameters(), 2e-4, (0.0, 0.9)), torch.optim.Adam(d.parameters(), 2e-4, (0.0, 0.9))
torch.manual_seed(rank)
for step in range(8):
    for _ in range(2):
        real, z = torch.rand(64, 3, 64, 64, device="cuda") * 2 - 1, torch.randn(64, 128, 1, 1, device="cuda")
        with torch.no_grad():
            fake = g(z)
        loss = F.relu(1 - d(real)).mean() + F.relu(1 + d(fake)).mean()
        do.zero_grad()
        loss.backward()
        do.step()
    if step % 4 == 0:
        real = real[:32].requires_grad_()
        slope, = torch.autograd.grad(d.module(real).sum(), real, create_graph=True)
        do.zero_grad()
        (5 * slope.square().sum((1, 2, 3)).mean()).backward()
        for p in d.parameters():
            if p.grad is not None:
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
        do.step()
    d.requires_grad_(False)
    loss = -d.module(g(torch.randn(64, 128, 1, 1, device="cuda"))).mean()
    go.zero_grad()
    loss.backward()
    go.step()
    d.requires_grad_(True)
    with torch.no_grad():
        for a, p in zip(average.parameters(), g.module.parameters()):
            a.lerp_(p, 0.001)
print(rank, loss.item(), average(torch.randn(4, 128, 1, 1, device="cuda")).shape)
dist.destroy_process_group()
