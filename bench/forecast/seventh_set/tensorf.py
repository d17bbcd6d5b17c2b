"""TensoRF: radiance from planes and lines of factors, made larger on the way with a new optimizer, rays thinned where density is low, total
variation, rendering in chunks."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
M, V = [(0, 1), (0, 2), (1, 2)], [2, 1, 0]
def factors(r, n):
    return nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, r, n, n, device="cuda")) for _ in range(3)), nn.ParameterList(nn.Parameter(0.1 * torch.randn(1, r, n, 1, device="cuda")) for _ in range(3))
dp, dl = factors(16, 96)
ap, al = factors(36, 96)
basis = nn.Linear(108, 27, bias=False).cuda()
mlp = nn.Sequential(nn.Linear(27 + 3 + 2 * 27 * 2 + 2 * 3 * 2, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 3)).cuda()
def look(planes, lines, x):
    out = []
    for (a, b), c, p, l in zip(M, V, planes, lines):
        plane = F.grid_sample(p, x[:, [a, b]].view(1, -1, 1, 2), align_corners=True).view(p.shape[1], -1)
        line = F.grid_sample(l, torch.stack([torch.zeros_like(x[:, c]), x[:, c]], 1).view(1, -1, 1, 2), align_corners=True).view(p.shape[1], -1)
        out.append(plane * line)
    return torch.cat(out)
def encode(x, n=2):
    y = (x[..., None] * 2.0 ** torch.arange(n, device="cuda")).flatten(-2)
    return torch.cat([y.sin(), y.cos()], -1)
def render(o, d, n):
    z = torch.linspace(0.1, 2.4, n, device="cuda") + torch.rand(len(o), 1, device="cuda") * 2.3 / n
    x = o[:, None] + d[:, None] * z[..., None]
    inside = (x.abs() < 1).all(-1)
    sigma = torch.zeros(x.shape[:2], device="cuda")
    sigma[inside] = F.softplus(look(dp, dl, x[inside]).sum(0) - 3)
    alpha = 1 - torch.exp(-sigma * 25 * 2.3 / n)
    w = alpha * torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]
    seen, rgb = w > 1e-4, torch.zeros(*x.shape, device="cuda")
    if seen.any():
        f, v = basis(look(ap, al, x[seen]).t()), d[:, None].expand_as(x)[seen]
        rgb[seen] = torch.sigmoid(mlp(torch.cat([f, v, encode(f), encode(v)], -1)))
    return (w[..., None] * rgb).sum(1) + 1 - w.sum(1, keepdim=True)
def optimizer():
    return torch.optim.Adam([{"params": [*dp, *dl, *ap, *al], "lr": 0.02}, {"params": [*basis.parameters(), *mlp.parameters()], "lr": 1e-3}], betas=(0.9, 0.99))
opt = optimizer()
for step in range(6):
    if step in (2, 4):
        n = {2: 128, 4: 176}[step]
        with torch.no_grad():
            for group, line in ((dp, 0), (dl, 1), (ap, 0), (al, 1)):
                for i in range(3):
                    group[i] = nn.Parameter(F.interpolate(group[i].data, size=(n, 1 if line else n), mode="bilinear", align_corners=True))
        opt = optimizer()
    o, d = torch.rand(3000, 3, device="cuda") * 0.4 - 0.2 + torch.tensor([0, 0, -1.3], device="cuda"), F.normalize(torch.randn(3000, 3, device="cuda") * 0.3 + torch.tensor([0, 0, 1.0], device="cuda"), dim=1)
    loss = F.mse_loss(render(o, d, 160), torch.rand(3000, 3, device="cuda"))
    loss = loss + 1e-3 * sum((p[..., 1:, :] - p[..., :-1, :]).square().mean() + (p[..., 1:] - p[..., :-1]).square().mean() for p in [*dp, *ap])
    opt.zero_grad()
    loss.backward()
    opt.step()
with torch.no_grad():
    print(loss.item(), torch.cat([render(o, d, 256).cpu() for _ in range(3)]).shape)
