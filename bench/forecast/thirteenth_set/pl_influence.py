"""Influence of examples: a network is trained, then conjugate gradients of Hessian products by torch.func until the rest is small, gradients of each example by vmap."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.func import functional_call, grad, jvp, vmap

torch.manual_seed(0)
model = nn.Sequential(nn.Conv2d(1, 32, 3, 2, 1), nn.GELU(), nn.Conv2d(32, 64, 3, 2, 1), nn.GELU(), nn.Conv2d(64, 96, 3, 2, 1), nn.GELU(), nn.Flatten(), nn.Linear(96 * 16, 128), nn.GELU(), nn.Linear(128, 10)).cuda()
x, y = torch.randn(4096, 1, 32, 32, device="cuda"), torch.randint(0, 10, (4096,), device="cuda")
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
for epoch in range(2):
    for at in torch.randperm(4096, device="cuda").split(512):
        loss = F.cross_entropy(model(x[at]), y[at])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
weights = {k: v.detach() for k, v in model.named_parameters()}


def total(w, a, b):
    return F.cross_entropy(functional_call(model, w, (a,)), b) + 1e-2 * sum(v.pow(2).sum() for v in w.values())


def product(v):
    out = None
    for a, b in zip(x.split(1024), y.split(1024)):
        part = jvp(lambda w: grad(total)(w, a, b), (weights,), (v,))[1]
        out = part if out is None else {k: out[k] + part[k] for k in out}
    return {k: t / 4 + 0.01 * v[k] for k, t in out.items()}


def dot(a, b):
    return sum((a[k] * b[k]).sum() for k in a)


asked = grad(total)(weights, x[:16], y[:16])
found, rest = {k: torch.zeros_like(v) for k, v in asked.items()}, asked
way, size = dict(rest), dot(rest, rest)
for turn in range(20):
    moved = product(way)
    rate = size / dot(way, moved)
    found, rest = {k: found[k] + rate * way[k] for k in found}, {k: rest[k] - rate * moved[k] for k in rest}
    new = dot(rest, rest)
    if new.sqrt() < 1e-8:
        break
    way, size = {k: rest[k] + new / size * way[k] for k in way}, new
each = vmap(grad(lambda w, a, b: total(w, a[None], b[None])), in_dims=(None, 0, 0))
scores = torch.cat([sum((g * found[k]).flatten(1).sum(1) for k, g in each(weights, a, b).items()) for a, b in zip(x.split(256), y.split(256))])
print(loss.item(), scores.topk(5).indices.tolist())
