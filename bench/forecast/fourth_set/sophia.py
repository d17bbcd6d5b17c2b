"""Sophia by hand: Hutchinson's estimate of the Hessian's diagonal every third step through a second backward pass."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Embedding(5000, 256), nn.LayerNorm(256), nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 256), nn.Linear(256, 5000)).cuda()
ps = list(model.parameters())
m, h = [torch.zeros_like(p) for p in ps], [torch.zeros_like(p) for p in ps]
for step in range(6):
    ids = torch.randint(0, 5000, (16, 128), device="cuda")
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    gs = torch.autograd.grad(loss, ps, create_graph=step % 3 == 0)
    if step % 3 == 0:
        noise = [torch.randn_like(p) for p in ps]
        for state, z, hz in zip(h, noise, torch.autograd.grad(gs, ps, noise)):
            state.lerp_(z * hz, 0.01)
        del noise, hz, z
    with torch.no_grad():
        for p, a, b, g in zip(ps, m, h, gs):
            a.lerp_(g.detach(), 0.04)
            p.add_((a / b.clamp(min=1e-4)).clamp_(-1, 1), alpha=-1e-3)
    del gs, loss
