"""PyTorch Geometric: molecules in batches, GINE with edge features, pooled; graphs of several sizes."""
import random
import torch
import torch.nn as nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, global_add_pool, global_mean_pool
random.seed(0)
torch.manual_seed(0)
def graph():
    n = random.randint(9, 60)
    e = torch.randint(0, n, (2, n * 3))
    return Data(x=torch.randint(0, 28, (n,)), edge_index=e, edge_attr=torch.randint(0, 4, (n * 3,)), y=torch.randn(1))
loader = DataLoader([graph() for _ in range(640)], batch_size=80, shuffle=True)
class Net(nn.Module):
    def __init__(self, width=190):
        super().__init__()
        self.atoms, self.bonds = nn.Embedding(28, width), nn.Embedding(4, width)
        self.convs = nn.ModuleList(GINEConv(nn.Sequential(nn.Linear(width, 2 * width), nn.BatchNorm1d(2 * width), nn.ReLU(), nn.Linear(2 * width, width)))
                                   for _ in range(5))
        self.norms = nn.ModuleList(nn.BatchNorm1d(width) for _ in range(5))
        self.out = nn.Linear(2 * width, 1)
    def forward(self, data):
        x, e = self.atoms(data.x), self.bonds(data.edge_attr)
        for conv, norm in zip(self.convs, self.norms):
            x = x + norm(conv(x, data.edge_index, e)).relu()
        return self.out(torch.cat([global_add_pool(x, data.batch), global_mean_pool(x, data.batch)], 1)).squeeze(1)
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for epoch in range(2):
    for data in loader:
        data = data.to("cuda")
        optimizer.zero_grad()
        loss = (model(data) - data.y).abs().mean()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
