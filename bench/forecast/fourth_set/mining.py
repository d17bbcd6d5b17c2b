"""Triplets: all distances by cdist, the hardest are mined by sorting and masks; near duplicates are counted."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(512, 1024), nn.BatchNorm1d(1024), nn.PReLU(), nn.Linear(1024, 128)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, amsgrad=True)
for step in range(6):
    x, labels = torch.randn(2048, 512, device="cuda"), torch.randint(0, 200, (2048,), device="cuda")
    z = nn.functional.normalize(model(x), dim=1)
    far = torch.cdist(z, z)
    same = labels[:, None] == labels[None]
    worst = far.masked_fill(~same, 0).amax(1)
    close = far.masked_fill(same, 9.0).sort(1).values[:, :8]
    active = (worst[:, None] - close + 0.2).relu()
    pairs = active.nonzero()
    loss = active[active > 0].mean() + 0 * len(pairs)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
