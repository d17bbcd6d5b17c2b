"""Recommendation: 26 tables of sparse rows, row-wise Adagrad by hand on coalesced gradients, pairs of products, binary loss, SGD for the dense part."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
SIZES = [400000, 30000, 1000, 200, 100000, 50] * 4 + [250000, 3]
tables = nn.ModuleList(nn.EmbeddingBag(n, 64, mode="sum", sparse=True) for n in SIZES).cuda()
bottom = nn.Sequential(nn.Linear(13, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU()).cuda()
top = nn.Sequential(nn.Linear(64 + 27 * 26 // 2, 1024), nn.ReLU(), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1)).cuda()
dense = torch.optim.SGD([*bottom.parameters(), *top.parameters()], lr=0.1, momentum=0.9)
squares = [torch.zeros(n, device="cuda") for n in SIZES]
low = torch.tril_indices(27, 27, -1, device="cuda")
B, K = 8192, 4
offsets = torch.arange(0, B * K, K, device="cuda")
for step in range(5):
    numbers = torch.rand(B, 13, device="cuda")
    words = [torch.randint(0, n, (B * K,), device="cuda") for n in SIZES]
    clicks = torch.randint(0, 2, (B,), device="cuda").float()
    x = bottom(numbers.log1p())
    all_ = torch.stack([x] + [t(w, offsets) for t, w in zip(tables, words)], 1)
    pairs = torch.bmm(all_, all_.transpose(1, 2))[:, low[0], low[1]]
    loss = F.binary_cross_entropy_with_logits(top(torch.cat([x, pairs], 1))[:, 0], clicks)
    loss.backward()
    dense.step()
    dense.zero_grad()
    with torch.no_grad():
        for table, square in zip(tables, squares):
            g = table.weight.grad.coalesce()
            rows, values = g.indices()[0], g.values()
            square.index_add_(0, rows, values.pow(2).mean(1))
            table.weight.index_add_(0, rows, values / (square[rows].sqrt() + 1e-8)[:, None], alpha=-0.05)
            table.weight.grad = None
print(loss.item())
