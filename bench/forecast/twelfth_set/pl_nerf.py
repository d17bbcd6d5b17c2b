"""NeRF: a coarse and a fine network, points drawn again by searchsorted where weights are, chunks of rays, a picture rendered without gradients."""
import torch
import torch.nn as nn

torch.manual_seed(0)


def encoded(x, bands):
    at = x[..., None] * (2.0 ** torch.arange(bands, device=x.device))
    return torch.cat([x, at.sin().flatten(-2), at.cos().flatten(-2)], -1)


class Field(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.ModuleList([nn.Linear(63, 256)] + [nn.Linear(256 + 63 * (i == 4), 256) for i in range(1, 8)])
        self.density, self.feature = nn.Linear(256, 1), nn.Linear(256, 256)
        self.view, self.colour = nn.Linear(256 + 27, 128), nn.Linear(128, 3)

    def forward(self, points, directions):
        p = h = encoded(points, 10)
        for i, layer in enumerate(self.first):
            h = torch.relu(layer(torch.cat([h, p], -1) if i == 4 else h))
        d = encoded(directions, 4)[:, None].expand(-1, points.shape[1], -1)
        return torch.sigmoid(self.colour(torch.relu(self.view(torch.cat([self.feature(h), d], -1))))), torch.relu(self.density(h))[..., 0]


def rendered(colour, density, depth):
    gaps = torch.cat([depth[:, 1:] - depth[:, :-1], torch.full_like(depth[:, :1], 1e10)], -1)
    alpha = 1 - torch.exp(-density * gaps)
    weights = alpha * torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], -1), -1)[:, :-1]
    return (weights[..., None] * colour).sum(1), weights


def drawn(bins, weights, count):
    share = weights + 1e-5
    total = torch.cumsum(share / share.sum(-1, keepdim=True), -1)
    total = torch.cat([torch.zeros_like(total[:, :1]), total], -1)
    u = torch.rand(total.shape[0], count, device=bins.device)
    after = torch.searchsorted(total, u, right=True)
    low, high = (after - 1).clamp(min=0), after.clamp(max=total.shape[-1] - 1)
    pair = torch.stack([low, high], -1)
    c = torch.gather(total[:, None].expand(-1, count, -1), 2, pair)
    b = torch.gather(bins[:, None].expand(-1, count, -1), 2, pair)
    width = c[..., 1] - c[..., 0]
    width = torch.where(width < 1e-5, torch.ones_like(width), width)
    return b[..., 0] + (u - c[..., 0]) / width * (b[..., 1] - b[..., 0])


def both(coarse, fine, origins, directions):
    depth = torch.linspace(2, 6, 64, device="cuda").expand(origins.shape[0], 64)
    depth = depth + torch.rand_like(depth) * 4 / 64
    first, weights = rendered(*coarse(origins[:, None] + directions[:, None] * depth[..., None], directions), depth)
    more = drawn(0.5 * (depth[:, 1:] + depth[:, :-1]), weights[:, 1:-1].detach(), 128)
    depth, _ = torch.sort(torch.cat([depth, more], -1), -1)
    return first, rendered(*fine(origins[:, None] + directions[:, None] * depth[..., None], directions), depth)[0]


coarse, fine = Field().cuda(), Field().cuda()
optimizer = torch.optim.Adam([*coarse.parameters(), *fine.parameters()], lr=5e-4)
for step in range(5):
    origins, directions, wanted = torch.randn(3, 2048, 3, device="cuda")
    first, second = both(coarse, fine, origins, nn.functional.normalize(directions, dim=-1))
    loss = ((first - wanted) ** 2).mean() + ((second - wanted) ** 2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    rays = torch.randn(2, 100 * 100, 3, device="cuda")
    picture = torch.cat([both(coarse, fine, o, d)[1] for o, d in zip(rays[0].split(4096), rays[1].split(4096))])
print(loss.item(), picture.shape)
