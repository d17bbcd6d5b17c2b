"""One network writes another's weights; stacked by vmap over tasks; second gradients through an inner step."""
import torch
import torch.nn as nn
from torch.func import functional_call, grad_and_value, vmap
torch.manual_seed(0)
target = nn.Sequential(nn.Linear(32, 64), nn.Tanh(), nn.Linear(64, 1)).to("meta")
shapes = {k: v.shape for k, v in target.named_parameters()}
total = sum(s.numel() for s in shapes.values())
writer = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, total)).cuda()
optimizer = torch.optim.Adam(writer.parameters(), lr=1e-4)
def parts(flat):
    at, out = 0, {}
    for k, s in shapes.items():
        out[k] = flat[at:at + s.numel()].view(s) * 0.1
        at += s.numel()
    return out
def inner(flat, x, y):
    def loss(f):
        return nn.functional.mse_loss(functional_call(target, parts(f), (x,)), y)
    g, _ = grad_and_value(loss)(flat)
    return loss(flat - 0.1 * g)
for step in range(5):
    tasks = torch.randn(128, 64, device="cuda")
    loss = vmap(inner)(writer(tasks), torch.randn(128, 200, 32, device="cuda"), torch.randn(128, 200, 1, device="cuda")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
