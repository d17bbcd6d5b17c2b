"""A graph network of 400 000 edges by hand: index_add, scatter_reduce of maxima, softmax over edges, graphs in a batch, drawn by DataLoader workers, pinned."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset


class Graphs(Dataset):
    def __len__(self):
        return 16

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        n = 3000
        return torch.randn(n, 64, generator=g), torch.randint(0, n, (2, 12000), generator=g), torch.randint(0, 5, (n,), generator=g)


def together(parts):
    places = torch.arange(len(parts)) * 3000
    edges = torch.cat([e + p for (_, e, _), p in zip(parts, places)], 1)
    return torch.cat([x for x, _, _ in parts]), edges, torch.cat([y for _, _, y in parts]), torch.arange(len(parts)).repeat_interleave(3000)


class Layer(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.lin, self.score, self.mix = nn.Linear(a, b), nn.Linear(2 * b, 4), nn.Sequential(nn.Linear(3 * b, b), nn.BatchNorm1d(b), nn.ReLU())

    def forward(self, x, edges):
        h = self.lin(x)
        a, b = edges
        score = F.leaky_relu(self.score(torch.cat([h[a], h[b]], 1)))
        top = torch.full((h.shape[0], 4), float("-inf"), device=h.device).scatter_reduce(0, b[:, None].expand(-1, 4), score, "amax")
        share = (score - top[b]).exp()
        total = torch.zeros(h.shape[0], 4, device=h.device).index_add(0, b, share)
        share = (share / total[b]).mean(1, keepdim=True)
        soft = torch.zeros_like(h).index_add(0, b, h[a] * share)
        most = torch.zeros_like(h).scatter_reduce(0, b[:, None].expand(-1, h.shape[1]), h[a], "amax", include_self=False)
        return self.mix(torch.cat([h, soft, most], 1))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Layer(64, 128), Layer(128, 128), Layer(128, 128)])
        self.out = nn.Linear(256, 5)

    def forward(self, x, edges, graph):
        for layer in self.layers:
            x = layer(x, edges)
        mean = torch.zeros(int(graph.max()) + 1, x.shape[1], device=x.device).index_reduce(0, graph, x, "mean", include_self=False)
        return self.out(torch.cat([x, mean[graph]], 1))


if __name__ == "__main__":
    torch.manual_seed(0)
    model = Net().cuda()
    optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
    for epoch in range(2):
        for x, edges, y, graph in DataLoader(Graphs(), batch_size=8, collate_fn=together, num_workers=2, pin_memory=True, persistent_workers=False):
            x, edges, y, graph = (t.to("cuda", non_blocking=True) for t in (x, edges, y, graph))
            loss = F.cross_entropy(model(x, edges, graph), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    print(loss.item())
