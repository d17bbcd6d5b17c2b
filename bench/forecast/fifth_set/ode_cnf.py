"""torchdiffeq: a neural ODE by fixed steps, through the solver and by the adjoint."""
import torch
import torch.nn as nn
from torchdiffeq import odeint, odeint_adjoint
torch.manual_seed(0)
class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(65, 400), nn.Tanh(), nn.Linear(400, 400), nn.Tanh(), nn.Linear(400, 64))
    def forward(self, t, x):
        return self.net(torch.cat([x, t.expand(x.shape[0], 1)], 1))
field = Field().cuda()
optimizer = torch.optim.RMSprop(field.parameters(), 1e-3)
times = torch.linspace(0, 1, 13).cuda()
for step in range(8):
    x = torch.randn(700, 64, device="cuda")
    solve = odeint if step % 2 else odeint_adjoint
    loss = solve(field, x, times, method="rk4")[-1].pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
