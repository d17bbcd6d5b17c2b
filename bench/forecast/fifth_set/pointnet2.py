"""PointNet++: farthest points by a loop, neighbours in a ball by sorting, three levels, labels of points by interpolation."""
import torch
import torch.nn as nn
torch.manual_seed(0)
def pick(x, index):
    return x.gather(1, index.reshape(x.shape[0], -1, 1).expand(-1, -1, x.shape[-1])).view(*index.shape, x.shape[-1])
def farthest(xyz, n):
    B, N, _ = xyz.shape
    chosen, distance, last = torch.zeros(B, n, dtype=torch.long, device=xyz.device), torch.full((B, N), 1e10, device=xyz.device), torch.randint(0, N, (B,), device=xyz.device)
    rows = torch.arange(B, device=xyz.device)
    for i in range(n):
        chosen[:, i] = last
        d = (xyz - xyz[rows, last].unsqueeze(1)).pow(2).sum(-1)
        closer = d < distance
        distance[closer] = d[closer]
        last = distance.max(-1)[1]
    return chosen
def ball(radius, k, xyz, centres):
    d = torch.cdist(centres, xyz).pow(2)
    index = torch.arange(xyz.shape[1], device=xyz.device).expand(d.shape).clone()
    index[d > radius ** 2] = xyz.shape[1]
    index = index.sort(-1)[0][..., :k]
    first = index[..., :1].expand_as(index)
    index = torch.where(index == xyz.shape[1], first, index)
    return index.clamp_max(xyz.shape[1] - 1)
class Level(nn.Module):
    def __init__(self, n, radius, k, width, widths):
        super().__init__()
        self.n, self.radius, self.k, layers = n, radius, k, []
        for w in widths:
            layers += [nn.Conv2d(width, w, 1), nn.BatchNorm2d(w), nn.ReLU()]
            width = w
        self.net = nn.Sequential(*layers)
    def forward(self, xyz, f):
        centres = pick(xyz, farthest(xyz, self.n))
        index = ball(self.radius, self.k, xyz, centres)
        g = torch.cat([pick(xyz, index) - centres.unsqueeze(2), pick(f, index)], -1)
        return centres, self.net(g.permute(0, 3, 2, 1)).max(2)[0].transpose(1, 2)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = Level(256, 0.2, 24, 6, (48, 48, 96)), Level(64, 0.4, 32, 99, (96, 96, 200))
        self.up = nn.Sequential(nn.Linear(299, 160), nn.ReLU(), nn.Linear(160, 50))
    def forward(self, xyz):
        x1, f1 = self.a(xyz, xyz)
        x2, f2 = self.b(x1, f1)
        d, i = torch.cdist(xyz, x2).topk(3, largest=False)
        w = 1 / (d + 1e-8)
        u = (pick(f2, i) * (w / w.sum(-1, keepdim=True)).unsqueeze(-1)).sum(2)
        return self.up(torch.cat([u, pick(f1, torch.cdist(xyz, x1).argmin(-1)), xyz], -1))
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(4):
    xyz = torch.rand(13, 1500, 3, device="cuda")
    loss = nn.functional.cross_entropy(model(xyz).transpose(1, 2), torch.randint(0, 50, (13, 1500), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item())
