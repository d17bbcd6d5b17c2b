"""torch.compile with dynamic=True: a convolutional tagger over texts of several lengths and batch sizes."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5003, 288)
        self.convs = nn.ModuleList(nn.Linear(3 * 288, 576) for _ in range(4))
        self.norms = nn.ModuleList(nn.LayerNorm(288) for _ in range(4))
        self.head = nn.Linear(288, 5003)
    def forward(self, ids):
        x = self.embed(ids)
        for conv, norm in zip(self.convs, self.norms):
            p = nn.functional.pad(norm(x), (0, 0, 2, 0))
            a, b = conv(torch.cat([p[:, :-2], p[:, 1:-1], p[:, 2:]], -1)).chunk(2, -1)
            x = x + a * torch.sigmoid(b)
        return self.head(x)
model = torch.compile(Net().cuda(), dynamic=True)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=False)
for batch, length in ((16, 100), (16, 171), (9, 230), (30, 64), (12, 250)):
    ids = torch.randint(0, 5003, (batch, length), device="cuda")
    loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
