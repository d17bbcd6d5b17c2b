"""K-FAC: hooks gather the factors of each layer, Cholesky inverts them."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(784, 640), nn.Tanh(), nn.Linear(640, 640), nn.Tanh(), nn.Linear(640, 10)).cuda()
layers, factors = [m for m in model if isinstance(m, nn.Linear)], {}
def before(m, args):
    x = torch.cat([args[0], args[0].new_ones(len(args[0]), 1)], 1)
    factors.setdefault(m, {})["a"] = x.T @ x / len(x)
def after(m, gin, gout):
    factors[m]["g"] = gout[0].T @ gout[0] * len(gout[0])
for m in layers:
    m.register_forward_pre_hook(before)
    m.register_full_backward_hook(after)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(6):
    loss = nn.functional.cross_entropy(model(torch.randn(2048, 784, device="cuda")), torch.randint(0, 10, (2048,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    with torch.no_grad():
        for m in layers:
            a, g = factors[m]["a"], factors[m]["g"]
            a = torch.cholesky_inverse(torch.linalg.cholesky(a + 0.1 * torch.eye(len(a), device="cuda")))
            g = torch.cholesky_inverse(torch.linalg.cholesky(g + 0.1 * torch.eye(len(g), device="cuda")))
            whole = g @ torch.cat([m.weight.grad, m.bias.grad[:, None]], 1) @ a
            m.weight.grad.copy_(whole[:, :-1])
            m.bias.grad.copy_(whole[:, -1])
    optimizer.step()
