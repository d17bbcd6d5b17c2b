"""PyTorch Geometric: GraphSAGE over a graph of two kinds (to_hetero), then GINE over batches of graphs by its DataLoader, with GraphNorm and attention that pools."""
import torch
import torch.nn.functional as F
from torch_geometric.data import Data, HeteroData
from torch_geometric.loader import DataLoader
from torch_geometric.nn import GINEConv, GraphNorm, GraphSAGE, MLP, AttentionalAggregation, to_hetero
torch.manual_seed(0)
g = HeteroData()
g["user"].x, g["item"].x = torch.randn(8000, 96), torch.randn(3000, 128)
g["user", "buys", "item"].edge_index = torch.stack([torch.randint(0, 8000, (60000,)), torch.randint(0, 3000, (60000,))])
g["item", "bought", "user"].edge_index = g["user", "buys", "item"].edge_index.flip(0)
model = to_hetero(GraphSAGE((-1, -1), 256, 3, 64, dropout=0.2), g.metadata(), aggr="sum").cuda()
g = g.cuda()
with torch.no_grad():
    model(g.x_dict, g.edge_index_dict)
opt = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    out = model(g.x_dict, g.edge_index_dict)
    a, b = g["user", "buys", "item"].edge_index[:, torch.randperm(60000, device="cuda")[:8192]]
    score = (out["user"][a] * out["item"][b]).sum(-1)
    loss = F.binary_cross_entropy_with_logits(score, torch.randint(0, 2, (8192,), device="cuda").float())
    opt.zero_grad()
    loss.backward()
    opt.step()
class Gin(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Linear(16, 256)
        self.convs = torch.nn.ModuleList(GINEConv(MLP([256, 512, 256], norm="layer_norm"), edge_dim=8, train_eps=True) for _ in range(4))
        self.norms = torch.nn.ModuleList(GraphNorm(256) for _ in range(4))
        self.pool, self.head = AttentionalAggregation(MLP([256, 128, 1])), MLP([256, 256, 12], dropout=0.3)
    def forward(self, d):
        x = self.embed(d.x)
        for conv, norm in zip(self.convs, self.norms):
            x = x + norm(conv(x, d.edge_index, d.edge_attr), d.batch, d.num_graphs).relu()
        return self.head(self.pool(x, d.batch, dim_size=d.num_graphs))
rows = [Data(x=torch.randn(n := 20 + i % 60, 16), edge_index=torch.randint(0, n, (2, 4 * n)), edge_attr=torch.randn(4 * n, 8), y=torch.randn(1, 12)) for i in range(1024)]
net = Gin().cuda()
opt = torch.optim.Adam(net.parameters(), lr=1e-3)
for batch in DataLoader(rows, batch_size=256, shuffle=True, pin_memory=True):
    batch = batch.cuda()
    loss = F.l1_loss(net(batch), batch.y)
    opt.zero_grad()
    loss.backward()
    opt.step()
print(loss.item())
