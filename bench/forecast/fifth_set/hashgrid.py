"""Instant NGP by hand: hash tables of 12 levels, trilinear corners, a small network, rays pruned by a grid of occupancy that is refreshed."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Hash(nn.Module):
    def __init__(self, levels=12, size=2 ** 17, width=2):
        super().__init__()
        self.tables = nn.Parameter((torch.rand(levels, size, width) - 0.5) * 2e-4)
        self.register_buffer("scale", (16 * 1.4 ** torch.arange(levels)).floor())
        self.register_buffer("corners", torch.tensor([[i, j, k] for i in (0, 1) for j in (0, 1) for k in (0, 1)]))
        self.register_buffer("primes", torch.tensor([1, 2654435761, 805459861]))
        self.size = size
    def forward(self, x):
        s = x[:, None] * self.scale[:, None]
        low = s.floor()
        f = (s - low)[:, :, None]
        c = low.long()[:, :, None] + self.corners
        h = c * self.primes
        h = (h[..., 0] ^ h[..., 1] ^ h[..., 2]) % self.size
        w = torch.where(self.corners.bool(), f, 1 - f).prod(-1, keepdim=True)
        v = self.tables[torch.arange(len(self.tables), device=x.device)[None, :, None], h]
        return (v * w).sum(2).flatten(1)
grid = Hash().cuda()
net = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 4)).cuda()
optimizer = torch.optim.Adam([*grid.parameters(), *net.parameters()], 1e-2, eps=1e-15)
occupied = torch.ones(32, 32, 32, dtype=torch.bool, device="cuda")
for step in range(6):
    if step % 3 == 0:
        with torch.no_grad():
            p = (torch.stack(torch.meshgrid(*[torch.arange(32, device="cuda")] * 3, indexing="ij"), -1).view(-1, 3) + torch.rand(32768, 3, device="cuda")) / 32
            density = net(grid(p))[:, 0].exp()
            occupied = (density > density.mean() * 0.5).view(32, 32, 32)
    o, d = torch.rand(2048, 1, 3, device="cuda"), nn.functional.normalize(torch.randn(2048, 1, 3, device="cuda"), dim=-1)
    t = torch.linspace(0.05, 1, 48, device="cuda")[None, :, None]
    p = (o + d * t).clamp(0, 0.9999)
    cells = (p * 32).long()
    keep = occupied[cells[..., 0], cells[..., 1], cells[..., 2]]
    out = torch.zeros(2048, 48, 4, device="cuda")
    out[keep] = net(grid(p[keep]))
    alpha = 1 - torch.exp(-out[..., 0].exp() * keep / 48)
    weight = alpha * torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-7], 1), 1)[:, :-1]
    loss = ((weight[..., None] * out[..., 1:].sigmoid()).sum(1) - torch.rand(2048, 3, device="cuda")).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
