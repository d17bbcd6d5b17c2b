"""Molecules in FP64: energies by pairs, forces by autograd, Verlet's steps; a potential is fitted to them."""
import torch
import torch.nn as nn
torch.manual_seed(0)
kind = dict(device="cuda", dtype=torch.float64)
net = nn.Sequential(nn.Linear(1, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 1)).to(**kind)
pairs = torch.combinations(torch.arange(96), 2).cuda()
def energy(x):
    far = (x[:, pairs[:, 0]] - x[:, pairs[:, 1]]).norm(dim=-1, keepdim=True)
    return net(1 / (far + 0.5)).sum((1, 2))
x, v = torch.rand(8, 96, 3, **kind) * 6, torch.zeros(8, 96, 3, **kind)
for step in range(5):
    x = x.detach().requires_grad_()
    force = -torch.autograd.grad(energy(x).sum(), x)[0]
    v = v + 0.01 * force
    x = x + 0.01 * v
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    y = torch.rand(8, 96, 3, **kind).mul_(6).requires_grad_()
    e = energy(y)
    force = -torch.autograd.grad(e.sum(), y, create_graph=True)[0]
    loss = e.pow(2).mean() + (force - torch.randn_like(force)).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
