"""Graph WaveNet for traffic: gated dilated convolutions over time, an adjacency that is learned, skips, masked errors of speeds, curriculum of horizons, tested by step."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
NODES = 207


class Graph(nn.Module):
    def __init__(self, into, out, supports=3, order=2):
        super().__init__()
        self.order, self.mlp = order, nn.Conv2d((order * supports + 1) * into, out, 1)

    def forward(self, x, supports):
        kept = [x]
        for a in supports:
            y = x
            for _ in range(self.order):
                y = torch.einsum("ncvl,vw->ncwl", (y, a)).contiguous()
                kept.append(y)
        return F.dropout(self.mlp(torch.cat(kept, 1)), 0.3, self.training)


class GraphWaveNet(nn.Module):
    def __init__(self, c=40, skip=320, blocks=4, layers=2):
        super().__init__()
        self.start, self.a, self.b = nn.Conv2d(2, c, 1), nn.Parameter(torch.randn(NODES, 10)), nn.Parameter(torch.randn(10, NODES))
        self.filters, self.gates, self.graphs, self.skips, self.norms = (nn.ModuleList() for _ in range(5))
        self.seen = 1
        for _ in range(blocks):
            for i in range(layers):
                d = 2 ** i
                self.filters.append(nn.Conv2d(c, c, (1, 2), dilation=d))
                self.gates.append(nn.Conv2d(c, c, (1, 2), dilation=d))
                self.graphs.append(Graph(c, c))
                self.skips.append(nn.Conv2d(c, skip, 1))
                self.norms.append(nn.BatchNorm2d(c))
                self.seen += d
        self.end = nn.Sequential(nn.ReLU(), nn.Conv2d(skip, 512, 1), nn.ReLU(), nn.Conv2d(512, 12, 1))

    def forward(self, x, fixed):
        if x.size(3) < self.seen:
            x = F.pad(x, (self.seen - x.size(3), 0, 0, 0))
        supports = [*fixed, F.softmax(F.relu(self.a @ self.b), 1)]
        x, skip = self.start(x), 0
        for f, g, graph, s, norm in zip(self.filters, self.gates, self.graphs, self.skips, self.norms):
            kept = x
            x = f(x).tanh() * g(x).sigmoid()
            said = s(x)
            skip = said + (skip[:, :, :, -said.size(3):] if torch.is_tensor(skip) else 0)
            x = norm(graph(x, supports) + kept[:, :, :, -x.size(3):])
        return self.end(skip)


def masked_mae(said, true):
    mask = (true != 0).float()
    mask = mask / mask.mean()
    loss = (said - true).abs() * mask
    return torch.where(torch.isnan(loss), torch.zeros_like(loss), loss).mean()


roads = torch.rand(2, NODES, NODES, device="cuda") * (torch.rand(2, NODES, NODES, device="cuda") < 0.05)
roads = roads / roads.sum(2, keepdim=True).clamp(min=1e-6)
model = GraphWaveNet().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=1e-4)
for step in range(6):
    x, y = torch.randn(64, 2, NODES, 12, device="cuda"), torch.rand(64, 12, NODES, 1, device="cuda") * 70
    ahead = min(12, 2 + 2 * step)
    loss = masked_mae(model(x, roads)[:, :ahead] * 20 + 50, y[:, :ahead])
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
    optimizer.step()
model.eval()
with torch.no_grad():
    said = torch.cat([model(torch.randn(64, 2, NODES, 12, device="cuda"), roads) for _ in range(4)])
print(loss.item(), [masked_mae(said[:, i], torch.rand(256, NODES, 1, device="cuda") * 70).item() for i in range(12)])
