"""MAML with torch.func: inner steps by grad of functional_call, tasks by vmap, an outer AdamW, five classes of small pictures."""
import torch
from torch import nn
from torch.func import functional_call, grad, vmap

torch.manual_seed(0)
block = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(4, o), nn.ReLU(), nn.MaxPool2d(2))
model = nn.Sequential(block(3, 32), block(32, 32), block(32, 32), nn.Flatten(), nn.Linear(32 * 36, 5)).cuda()
params = {k: v for k, v in model.named_parameters()}
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)


def loss_of(p, x, y):
    return nn.functional.cross_entropy(functional_call(model, p, (x,)), y)


def task(xs, ys, xq, yq):
    p = params
    for _ in range(3):
        g = grad(loss_of)(p, xs, ys)
        p = {k: v - 0.05 * g[k] for k, v in p.items()}
    return loss_of(p, xq, yq)


for step in range(5):
    xs, xq = torch.rand(8, 25, 3, 48, 48, device="cuda"), torch.rand(8, 40, 3, 48, 48, device="cuda")
    ys, yq = torch.randint(0, 5, (8, 25), device="cuda"), torch.randint(0, 5, (8, 40), device="cuda")
    loss = vmap(task)(xs, ys, xq, yq).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
