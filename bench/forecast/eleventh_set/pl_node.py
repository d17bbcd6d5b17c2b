"""A neural ODE that classifies pictures: Runge-Kutta by hand with an adjoint in an autograd function, Adamax."""
import torch
from torch import nn

torch.manual_seed(0)


class Field(nn.Module):
    def __init__(self, w=64):
        super().__init__()
        self.n1, self.n2 = nn.GroupNorm(16, w), nn.GroupNorm(16, w)
        self.c1, self.c2 = nn.Conv2d(w + 1, w, 3, padding=1), nn.Conv2d(w + 1, w, 3, padding=1)

    def forward(self, t, x):
        tt = torch.full_like(x[:, :1], t)
        x = self.c1(torch.cat([torch.relu(self.n1(x)), tt], 1))
        return self.c2(torch.cat([torch.relu(self.n2(x)), tt], 1))


def rk4(f, x, t, h):
    a = f(t, x)
    b = f(t + h / 2, x + h / 2 * a)
    c = f(t + h / 2, x + h / 2 * b)
    return x + h / 6 * (a + 2 * b + 2 * c + f(t + h, x + h * c))


class Adjoint(torch.autograd.Function):
    @staticmethod
    def forward(ctx, field, steps, x, *weights):
        ctx.field, ctx.steps = field, steps
        with torch.no_grad():
            states = [x]
            for i in range(steps):
                states.append(rk4(field, states[-1], i / steps, 1 / steps))
        ctx.save_for_backward(*states[:-1])
        return states[-1]

    @staticmethod
    def backward(ctx, g):
        weights = tuple(ctx.field.parameters())
        total = [torch.zeros_like(w) for w in weights]
        for i in reversed(range(ctx.steps)):
            with torch.enable_grad():
                x = ctx.saved_tensors[i].detach().requires_grad_(True)
                y = rk4(ctx.field, x, i / ctx.steps, 1 / ctx.steps)
            g, *found = torch.autograd.grad(y, (x, *weights), g)
            total = [a + b for a, b in zip(total, found)]
        return (None, None, g, *total)


stem = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), nn.GroupNorm(16, 64), nn.ReLU(), nn.Conv2d(64, 64, 4, 2, 1)).cuda()
field, head = Field().cuda(), nn.Sequential(nn.GroupNorm(16, 64), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10)).cuda()
optimizer = torch.optim.Adamax([*stem.parameters(), *field.parameters(), *head.parameters()], lr=1e-3)
for step in range(5):
    x, y = torch.rand(64, 3, 64, 64, device="cuda"), torch.randint(0, 10, (64,), device="cuda")
    loss = nn.functional.cross_entropy(head(Adjoint.apply(field, 8, stem(x), *field.parameters())), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
