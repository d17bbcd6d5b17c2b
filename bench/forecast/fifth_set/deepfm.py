"""DeepFM: 26 tables of several sizes with sparse gradients by SparseAdam, a dense part by Adam, batches of 4000."""
import torch
import torch.nn as nn
torch.manual_seed(0)
sizes = [100 * (i + 1) ** 2 for i in range(26)]
class Net(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        self.tables, self.firsts = nn.ModuleList(nn.Embedding(n, width, sparse=True) for n in sizes), nn.ModuleList(nn.Embedding(n, 1, sparse=True) for n in sizes)
        self.dense, self.deep = nn.Linear(13, width), nn.Sequential(nn.Linear(27 * width, 400), nn.ReLU(), nn.Dropout(0.2), nn.Linear(400, 400), nn.ReLU(), nn.Linear(400, 1))
    def forward(self, x, c):
        e = torch.stack([self.dense(x), *(t(c[:, i]) for i, t in enumerate(self.tables))], 1)
        fm = 0.5 * (e.sum(1).pow(2) - e.pow(2).sum(1)).sum(1, keepdim=True)
        return (sum(f(c[:, i]) for i, f in enumerate(self.firsts)) + fm + self.deep(e.flatten(1))).squeeze(1)
model = Net().cuda()
sparse = torch.optim.SparseAdam([p for m in (model.tables, model.firsts) for p in m.parameters()], 1e-3)
dense = torch.optim.Adam([*model.dense.parameters(), *model.deep.parameters()], 1e-3)
for step in range(8):
    c = torch.stack([torch.randint(0, n, (4000,)) for n in sizes], 1).cuda()
    loss = nn.functional.binary_cross_entropy_with_logits(model(torch.randn(4000, 13, device="cuda"), c), torch.randint(0, 2, (4000,), device="cuda").float())
    for o in (sparse, dense):
        o.zero_grad()
    loss.backward()
    for o in (sparse, dense):
        o.step()
print(loss.item())
