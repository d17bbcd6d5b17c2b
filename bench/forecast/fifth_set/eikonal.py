"""A surface as the zeros of a network: weight norm, softplus, gradients of the input in the loss, points resampled near the surface."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class SDF(nn.Module):
    def __init__(self, w=500, n=8):
        super().__init__()
        self.layers = nn.ModuleList(nn.utils.parametrizations.weight_norm(nn.Linear(3 if i == 0 else w, 1 if i == n - 1 else w - 3 if i == 3 else w)) for i in range(n))
        self.act = nn.Softplus(beta=100)
    def forward(self, x):
        h = x
        for i, layer in enumerate(self.layers):
            if i == 4:
                h = torch.cat([h, x], -1) / 2 ** 0.5
            h = layer(h)
            if i < len(self.layers) - 1:
                h = self.act(h)
        return h
model = SDF().cuda()
optimizer = torch.optim.Adam(model.parameters(), 5e-3, weight_decay=0)
for step in range(5):
    on = torch.randn(3500, 3, device="cuda", requires_grad=True)
    off = torch.cat([on.detach() + 0.1 * torch.randn_like(on), torch.rand(500, 3, device="cuda") * 2 - 1]).requires_grad_()
    a, b = model(on), model(off)
    ga, = torch.autograd.grad(a, on, torch.ones_like(a), create_graph=True)
    gb, = torch.autograd.grad(b, off, torch.ones_like(b), create_graph=True)
    loss = a.abs().mean() + 0.1 * (gb.norm(2, -1) - 1).pow(2).mean() + (ga - nn.functional.normalize(on, dim=-1)).norm(2, -1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
