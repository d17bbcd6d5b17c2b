"""A graph network by scatter: neighbours sampled on the card, unique nodes, means and maxima of messages."""
import torch
import torch.nn as nn
torch.manual_seed(0)
nodes, edges = 60000, 600000
features = torch.randn(nodes, 128, device="cuda")
source, target = torch.randint(0, nodes, (edges,), device="cuda"), torch.randint(0, nodes, (edges,), device="cuda")
labels = torch.randint(0, 16, (nodes,), device="cuda")
class Layer(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.mine, self.mean, self.most = nn.Linear(a, b), nn.Linear(a, b), nn.Linear(a, b)
    def forward(self, x, source, target):
        message = x[source]
        count = torch.zeros(len(x), device="cuda").index_add_(0, target, torch.ones(len(target), device="cuda")).clamp(min=1)
        mean = torch.zeros_like(x).index_add(0, target, message) / count[:, None]
        most = torch.zeros_like(x).scatter_reduce(0, target[:, None].expand_as(message), message, "amax", include_self=False)
        return self.mine(x) + self.mean(mean) + self.most(most)
first, second = Layer(128, 256).cuda(), Layer(256, 16).cuda()
optimizer = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=1e-3)
for step in range(6):
    pick = torch.randint(0, edges, (80000,), device="cuda")
    seen, inverse = torch.unique(torch.cat([source[pick], target[pick]]), return_inverse=True)
    s, t = inverse.chunk(2)
    hidden = torch.relu(first(features[seen], s, t))
    out = second(nn.functional.dropout(hidden, 0.3), s, t)
    loss = nn.functional.cross_entropy(out, labels[seen])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
