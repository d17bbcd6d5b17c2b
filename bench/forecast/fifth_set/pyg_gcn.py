"""PyTorch Geometric: a GCN, a GAT and GraphSAGE on one random graph, full batch, with dropout."""
import torch
import torch.nn.functional as F
from torch_geometric.nn import GATConv, GCNConv, SAGEConv
torch.manual_seed(0)
nodes, edges = 7013, 61007
x = torch.randn(nodes, 301).cuda()
edge_index = torch.randint(0, nodes, (2, edges)).cuda()
y = torch.randint(0, 17, (nodes,)).cuda()
train = (torch.rand(nodes) < 0.3).cuda()
class Net(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        if kind is GATConv:
            self.first, self.second = kind(301, 16, heads=8, dropout=0.4), kind(128, 17, heads=1, concat=False)
        else:
            self.first, self.second = kind(301, 128), kind(128, 17)
    def forward(self, x, edge_index):
        x = F.dropout(x, 0.5, self.training)
        x = F.elu(self.first(x, edge_index))
        return self.second(F.dropout(x, 0.5, self.training), edge_index)
for kind in (GCNConv, GATConv, SAGEConv):
    model = Net(kind).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    for epoch in range(5):
        model.train()
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x, edge_index)[train], y[train])
        loss.backward()
        optimizer.step()
        model.eval()
        with torch.no_grad():
            right = (model(x, edge_index).argmax(1) == y).float().mean().item()
    print(kind.__name__, loss.item(), right)
