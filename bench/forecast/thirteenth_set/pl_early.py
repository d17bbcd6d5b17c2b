"""A table of numbers and kinds (FT-Transformer), stopped early when the validation loss has not fallen for two epochs, the best weights kept on the CPU."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

torch.manual_seed(0)


class Tokens(nn.Module):
    def __init__(self, numbers, kinds, dim):
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.randn(numbers, dim) * 0.02), nn.Parameter(torch.zeros(numbers, dim))
        self.tables = nn.ModuleList(nn.Embedding(n, dim) for n in kinds)
        self.first = nn.Parameter(torch.randn(1, 1, dim) * 0.02)

    def forward(self, x, c):
        return torch.cat([self.first.expand(len(x), -1, -1), x[..., None] * self.weight + self.bias, torch.stack([t(c[:, i]) for i, t in enumerate(self.tables)], 1)], 1)


class Table(nn.Module):
    def __init__(self, numbers=40, kinds=(100, 20, 2000, 7, 50, 300), dim=192, depth=4):
        super().__init__()
        self.tokens = Tokens(numbers, kinds, dim)
        self.body = nn.TransformerEncoder(nn.TransformerEncoderLayer(dim, 8, 4 * dim, 0.1, "gelu", batch_first=True, norm_first=True), depth, enable_nested_tensor=False)
        self.head = nn.Sequential(nn.LayerNorm(dim), nn.ReLU(), nn.Linear(dim, 1))

    def forward(self, x, c):
        return self.head(self.body(self.tokens(x, c))[:, 0])[:, 0]


n, kinds = 6000, (100, 20, 2000, 7, 50, 300)
data = TensorDataset(torch.randn(n, 40), torch.stack([torch.randint(0, k, (n,)) for k in kinds], 1), torch.rand(n))
train, valid = random_split(data, [5000, 1000])
model = Table().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=1e-5)
plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.3, patience=0)
best, kept, waited = float("inf"), None, 0
for epoch in range(6):
    model.train()
    for x, c, y in DataLoader(train, 1024, shuffle=True, drop_last=False, pin_memory=True):
        loss = F.huber_loss(model(x.cuda(non_blocking=True), c.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    with torch.no_grad():
        total = sum(F.huber_loss(model(x.cuda(), c.cuda()), y.cuda(), reduction="sum").item() for x, c, y in DataLoader(valid, 500)) / len(valid)
    plateau.step(total)
    if total < best - 1e-4:
        best, waited, kept = total, 0, {k: v.cpu().clone() for k, v in copy.deepcopy(model).state_dict().items()}
    else:
        waited += 1
        if waited >= 2:
            print("stopped after epoch", epoch)
            break
model.load_state_dict(kept)
with torch.no_grad():
    print(best, model(data.tensors[0].cuda(), data.tensors[1].cuda()).mean().item())
