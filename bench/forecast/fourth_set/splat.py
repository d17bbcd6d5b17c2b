"""Gaussians are drawn: sorted by depth, blended by products that run along each pixel, tiles of those that reach them."""
import torch
torch.manual_seed(0)
n = 3000
place, size, colour, alpha = (torch.nn.Parameter(t.cuda()) for t in (torch.rand(n, 3), torch.full((n, 2), -3.0), torch.rand(n, 3), torch.zeros(n)))
optimizer = torch.optim.Adam([{"params": [place], "lr": 1e-3}, {"params": [size, colour, alpha], "lr": 1e-2}])
ys, xs = torch.meshgrid(torch.linspace(0, 1, 64), torch.linspace(0, 1, 64), indexing="ij")
pixels = torch.stack([xs, ys], -1).cuda()
for step in range(5):
    goal, loss = torch.rand(64, 64, 3, device="cuda"), 0
    order = place[:, 2].argsort()
    p, s, c, a = place[order, :2], size[order].exp(), colour[order].sigmoid(), alpha[order].sigmoid()
    for i in range(0, 64, 16):
        for j in range(0, 64, 16):
            tile = pixels[i:i + 16, j:j + 16].reshape(-1, 2)
            off = (tile[:, None] - p) / s
            weight = a * torch.exp(-0.5 * off.pow(2).sum(-1))
            left = torch.cumprod(torch.cat([torch.ones_like(weight[:, :1]), 1 - weight[:, :-1]], 1), 1)
            loss = loss + ((weight * left) @ c - goal[i:i + 16, j:j + 16].reshape(-1, 3)).abs().sum()
    optimizer.zero_grad()
    (loss / 4096).backward()
    optimizer.step()
    with torch.no_grad():
        faint = alpha.sigmoid() < 0.005
        place[faint] = torch.rand(int(faint.sum()), 3, device="cuda")
