"""PyTorch Geometric: a temporal graph network as in its example, a memory for each node, last neighbours on the card, events in batches, edges scored."""
import torch
from torch.nn import Linear
from torch_geometric.data import TemporalData
from torch_geometric.loader import TemporalDataLoader
from torch_geometric.nn import TGNMemory, TransformerConv
from torch_geometric.nn.models.tgn import IdentityMessage, LastAggregator, LastNeighborLoader

torch.manual_seed(0)
NODES, EVENTS, SIZE = 20000, 4000, 256
data = TemporalData(src=torch.randint(0, 8000, (EVENTS,)), dst=torch.randint(8000, NODES, (EVENTS,)), t=torch.arange(EVENTS) * 7, msg=torch.randn(EVENTS, 172)).to("cuda")
loader = TemporalDataLoader(data, batch_size=400, neg_sampling_ratio=1.0)
neighbours = LastNeighborLoader(NODES, size=10, device="cuda")


class Embedding(torch.nn.Module):
    def __init__(self, memory, message, out, time):
        super().__init__()
        self.time = time
        self.conv = TransformerConv(memory, out // 2, heads=2, dropout=0.1, edge_dim=message + time.out_channels)

    def forward(self, x, last, edges, t, message):
        ago = (last[edges[0]] - t).to(x.dtype)
        return self.conv(x, edges, torch.cat([self.time(ago), message], -1))


class Predictor(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.a, self.b, self.out = Linear(size, size), Linear(size, size), Linear(size, 1)

    def forward(self, x, y):
        return self.out((self.a(x) + self.b(y)).relu())


memory = TGNMemory(NODES, 172, SIZE, SIZE, message_module=IdentityMessage(172, SIZE, SIZE), aggregator_module=LastAggregator()).cuda()
embed = Embedding(SIZE, 172, SIZE, memory.time_enc).cuda()
predict = Predictor(SIZE).cuda()
optimizer = torch.optim.Adam({*memory.parameters(), *embed.parameters(), *predict.parameters()}, lr=1e-4)
assoc = torch.empty(NODES, dtype=torch.long, device="cuda")
memory.reset_state()
neighbours.reset_state()
for batch in loader:
    optimizer.zero_grad()
    ids, edges, which = neighbours(batch.n_id)
    assoc[ids] = torch.arange(ids.size(0), device="cuda")
    z, last = memory(ids)
    z = embed(z, last, edges, data.t[which], data.msg[which])
    good, bad = predict(z[assoc[batch.src]], z[assoc[batch.dst]]), predict(z[assoc[batch.src]], z[assoc[batch.neg_dst]])
    loss = torch.nn.functional.binary_cross_entropy_with_logits(good, torch.ones_like(good)) + torch.nn.functional.binary_cross_entropy_with_logits(bad, torch.zeros_like(bad))
    memory.update_state(batch.src, batch.dst, batch.t, batch.msg)
    neighbours.insert(batch.src, batch.dst)
    loss.backward()
    optimizer.step()
    memory.detach()
print(loss.item())
