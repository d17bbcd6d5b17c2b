"""A graph attention network in plain PyTorch: softmax over edges by scatter_reduce and index_add, edges dropped, evaluation on a half of the nodes."""
import torch
from torch import nn

torch.manual_seed(0)


class GAT(nn.Module):
    def __init__(self, i, o, heads):
        super().__init__()
        self.heads, self.width = heads, o // heads
        self.lin = nn.Linear(i, o, bias=False)
        self.a = nn.Parameter(torch.randn(2, heads, self.width) * 0.1)

    def forward(self, x, source, target):
        n, h = x.shape[0], self.lin(x).view(-1, self.heads, self.width)
        score = nn.functional.leaky_relu((h * self.a[0]).sum(-1)[source] + (h * self.a[1]).sum(-1)[target], 0.2)
        top = torch.full((n, self.heads), -1e9, device=x.device).scatter_reduce(0, target[:, None].expand_as(score), score, "amax")
        weight = (score - top[target]).exp()
        total = torch.zeros(n, self.heads, device=x.device).index_add(0, target, weight)
        weight = weight / (total[target] + 1e-9)
        out = torch.zeros(n, self.heads, self.width, device=x.device).index_add(0, target, h[source] * weight[..., None])
        return out.flatten(1)


nodes, edges = 12000, 180000
x = torch.randn(nodes, 256, device="cuda")
y = torch.randint(0, 16, (nodes,), device="cuda")
source, target = torch.randint(0, nodes, (2, edges), device="cuda")
first, second, head = GAT(256, 256, 8).cuda(), GAT(256, 256, 8).cuda(), nn.Linear(256, 16).cuda()
parameters = [*first.parameters(), *second.parameters(), *head.parameters()]
optimizer = torch.optim.NAdam(parameters, lr=5e-3, weight_decay=5e-4)
train = torch.arange(nodes, device="cuda") % 2 == 0
for step in range(6):
    kept = torch.randperm(edges, device="cuda")[:edges * 9 // 10]
    h = nn.functional.elu(first(nn.functional.dropout(x, 0.5), source[kept], target[kept]))
    h = nn.functional.elu(second(nn.functional.dropout(h, 0.5), source[kept], target[kept])) + h
    loss = nn.functional.cross_entropy(head(h)[::2], y[::2])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    h = nn.functional.elu(first(x, source, target))
    h = nn.functional.elu(second(h, source, target)) + h
    print(loss.item(), ((head(h).argmax(1) == y) & ~train).sum().item())
