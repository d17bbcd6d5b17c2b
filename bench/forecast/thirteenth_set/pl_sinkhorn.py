"""Optimal transport: Sinkhorn's steps in logarithms until the marginals fit, unrolled for gradients of a generator of points; points sorted by their cost."""
import torch
import torch.nn as nn

torch.manual_seed(0)


def sinkhorn(x, y, eps=0.5, most=30, close=1e-3):
    cost = (x[:, None] - y[None]).pow(2).sum(-1) if x.shape[1] < 4 else torch.cdist(x, y).pow(2)
    a, b = torch.full((len(x),), 1 / len(x), device=x.device).log(), torch.full((len(y),), 1 / len(y), device=x.device).log()
    f, g = torch.zeros_like(a), torch.zeros_like(b)
    for turn in range(most):
        before = f
        f = eps * (a - torch.logsumexp((g[None] - cost) / eps, 1))
        g = eps * (b - torch.logsumexp((f[:, None] - cost) / eps, 0))
        if (f - before).abs().mean().item() < close:
            break
    plan = torch.exp((f[:, None] + g[None] - cost) / eps + a[:, None] * 0)
    return (plan * cost).sum(), plan, turn + 1


net = nn.Sequential(nn.Linear(32, 512), nn.LeakyReLU(0.2), nn.Linear(512, 512), nn.LeakyReLU(0.2), nn.Linear(512, 16)).cuda()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
for step in range(5):
    target = torch.randn(1536, 16, device="cuda") + 2
    points = net(torch.randn(1536, 32, device="cuda"))
    loss, plan, turns = sinkhorn(points, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(step, loss.item(), turns)
with torch.no_grad():
    print(plan.argmax(1).unique().numel())
