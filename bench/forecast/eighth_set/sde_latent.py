"""torchsde: a latent SDE as its example has it, drift and diffusion by networks, KL along the path, solved by Euler's steps."""
import torch
import torch.nn as nn
import torchsde
torch.manual_seed(0)
class Latent(nn.Module):
    sde_type, noise_type = "ito", "diagonal"
    def __init__(self, data=6, latent=16, context=64, hidden=256):
        super().__init__()
        self.encoder, self.to_context, self.qz0 = nn.GRU(data, hidden), nn.Linear(hidden, context), nn.Linear(context, 2 * latent)
        net = lambda i, o: nn.Sequential(nn.Linear(i, hidden), nn.Softplus(), nn.Linear(hidden, hidden), nn.Softplus(), nn.Linear(hidden, o))
        self.f_net, self.h_net = net(latent + context, latent), net(latent, latent)
        self.g_nets, self.out = nn.ModuleList(nn.Sequential(nn.Linear(1, hidden), nn.Softplus(), nn.Linear(hidden, 1), nn.Sigmoid()) for _ in range(latent)), nn.Linear(latent, data)
    def f(self, t, y):
        i = min(torch.searchsorted(self.ts, t, right=True), len(self.ts) - 1)
        return self.f_net(torch.cat((y, self.context[i]), 1))
    def h(self, t, y):
        return self.h_net(y)
    def g(self, t, y):
        return torch.cat([g(x) for g, x in zip(self.g_nets, y.split(1, 1))], 1)
    def forward(self, xs, ts):
        self.ts, self.context = ts, self.to_context(self.encoder(xs.flip(0))[0]).flip(0)
        mean, logstd = self.qz0(self.context[0]).chunk(2, 1)
        z0 = mean + logstd.exp() * torch.randn_like(mean)
        zs, kl = torchsde.sdeint(self, z0, ts, dt=0.05, logqp=True, method="euler", names={"drift": "f", "diffusion": "g", "prior_drift": "h"})
        return (self.out(zs) - xs).pow(2).mean() + 1e-3 * kl.sum(0).mean()
model = Latent().cuda()
optimizer, scheduler = torch.optim.Adam(model.parameters(), lr=1e-2), None
ts = torch.linspace(0, 1.5, 24, device="cuda")
for step in range(4):
    loss = model(torch.randn(24, 1024, 6, device="cuda"), ts)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
