"""PyTorch Geometric: GPS layers (GINE beside attention over dense batches) on graphs of many sizes, random walks as positions, a pooled regression."""
import torch
from torch import nn
from torch_geometric.data import Data
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, GPSConv, SAGPooling, global_add_pool
from torch_geometric.transforms import AddRandomWalkPE

torch.manual_seed(0)
walk = AddRandomWalkPE(16, attr_name="pe")
graphs = []
for _ in range(300):
    n = int(torch.randint(40, 120, (1,)))
    graphs.append(walk(Data(x=torch.randint(0, 28, (n,)), edge_index=torch.randint(0, n, (2, 4 * n)), edge_attr=torch.randint(0, 4, (4 * n,)), y=torch.randn(1), num_nodes=n)))


class Gps(nn.Module):
    def __init__(self, dim=192, depth=5):
        super().__init__()
        self.nodes, self.edges, self.where, self.norm = nn.Embedding(28, dim - 16), nn.Embedding(4, dim), nn.Linear(16, 16), nn.BatchNorm1d(16)
        self.layers = nn.ModuleList(GPSConv(dim, GINEConv(nn.Sequential(nn.Linear(dim, dim), nn.ReLU(), nn.Linear(dim, dim))), heads=4, attn_type="multihead") for _ in range(depth))
        self.pool = SAGPooling(dim, ratio=0.5)
        self.head = nn.Sequential(nn.Linear(dim, dim // 2), nn.ReLU(), nn.Linear(dim // 2, 1))

    def forward(self, g):
        x, e = torch.cat([self.nodes(g.x), self.where(self.norm(g.pe))], 1), self.edges(g.edge_attr)
        for layer in self.layers:
            x = layer(x, g.edge_index, g.batch, edge_attr=e)
        x, _, _, batch, _, _ = self.pool(x, g.edge_index, None, g.batch)
        return self.head(global_add_pool(x, batch))[:, 0]


model = Gps().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step, g in enumerate(DataLoader(graphs, batch_size=96, shuffle=True, drop_last=True)):
    g = g.cuda()
    loss = (model(g) - g.y).abs().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    print(loss.item(), sum((model(g.cuda()) - g.y.cuda()).abs().sum().item() for g in DataLoader(graphs, batch_size=150)))
