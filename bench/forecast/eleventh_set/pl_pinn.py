"""A physics-informed network for Burgers' equation: second derivatives in the loss, Adam first, then L-BFGS with a line search."""
import torch
from torch import nn

torch.manual_seed(0)
layers = []
for i, o in zip((2, *[256] * 6), (*[256] * 6, 1)):
    layers += [nn.Linear(i, o), nn.Tanh()]
model = nn.Sequential(*layers[:-1]).cuda()


def residual(points):
    points = points.requires_grad_(True)
    u = model(points)
    du = torch.autograd.grad(u, points, torch.ones_like(u), create_graph=True)[0]
    uxx = torch.autograd.grad(du[:, :1], points, torch.ones_like(u), create_graph=True)[0][:, :1]
    return du[:, 1:] + u * du[:, :1] - 0.01 / torch.pi * uxx


inside = torch.rand(20000, 2, device="cuda") * 2 - 1
start = torch.cat([torch.rand(2000, 1, device="cuda") * 2 - 1, torch.zeros(2000, 1, device="cuda")], 1)
wanted = -torch.sin(torch.pi * start[:, :1])


def loss_fn():
    return residual(inside).pow(2).mean() + 10 * (model(start) - wanted).pow(2).mean()


adam = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(6):
    adam.zero_grad()
    loss = loss_fn()
    loss.backward()
    adam.step()
lbfgs = torch.optim.LBFGS(model.parameters(), lr=1.0, max_iter=5, history_size=10)


def closure():
    lbfgs.zero_grad()
    loss = loss_fn()
    loss.backward()
    return loss


for step in range(3):
    loss = lbfgs.step(closure)
print(loss.item())
