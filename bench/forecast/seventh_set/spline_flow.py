"""A neural spline flow: rational quadratic splines with bins by searchsorted, coupling layers whose inside points are chosen by a mask (boolean
assignment), LU mixing, FP32, then samples by the inverse."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D, K, B = 12, 16, 4.0
def spline(x, w, h, d, inverse=False):
    w, h = 1e-3 + (1 - 1e-3 * K) * w.softmax(-1), 1e-3 + (1 - 1e-3 * K) * h.softmax(-1)
    cw, ch = F.pad(w.cumsum(-1), (1, 0)) * 2 * B - B, F.pad(h.cumsum(-1), (1, 0)) * 2 * B - B
    d = 1e-3 + F.softplus(F.pad(d, (1, 1), value=0.54))
    i = (torch.searchsorted((ch if inverse else cw).detach(), x[..., None]) - 1).clamp(0, K - 1)
    g = lambda t: t.gather(-1, i)[..., 0]
    x0, y0, ww, hh = g(cw), g(ch), g(cw[..., 1:] - cw[..., :-1]), g(ch[..., 1:] - ch[..., :-1])
    s, d0, d1 = hh / ww, g(d), d.gather(-1, i + 1)[..., 0]
    if inverse:
        t = x - y0
        a, b, c = t * (d0 + d1 - 2 * s) + hh * (s - d0), hh * d0 - t * (d0 + d1 - 2 * s), -s * t
        return 2 * c / (-b - (b * b - 4 * a * c).clamp(min=0).sqrt()) * ww + x0, None
    u = (x - x0) / ww
    den = s + (d0 + d1 - 2 * s) * u * (1 - u)
    return y0 + hh * (s * u * u + d0 * u * (1 - u)) / den, 2 * s.log() + (d1 * u * u + 2 * s * u * (1 - u) + d0 * (1 - u) ** 2).log() - 2 * den.log()
class Coupling(nn.Module):
    def __init__(self, flip):
        super().__init__()
        self.flip, self.net = flip, nn.Sequential(nn.Linear(D // 2, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, D // 2 * (3 * K - 1)))
        self.lower, self.upper, self.diag = nn.Parameter(torch.randn(D, D) * 0.01), nn.Parameter(torch.randn(D, D) * 0.01), nn.Parameter(torch.zeros(D))
    def matrix(self):
        return (self.lower.tril(-1) + torch.eye(D, device="cuda")) @ (self.upper.triu(1) + torch.diag(self.diag.exp()))
    def forward(self, x, inverse=False):
        if inverse:
            pass
        else:
            x = x @ self.matrix().t()
        a, b = x.chunk(2, -1)[::-1] if self.flip else x.chunk(2, -1)
        w, h, d = self.net(a).view(-1, D // 2, 3 * K - 1).split([K, K, K - 1], -1)
        inside = (b >= -B) & (b <= B)
        out, logdet = b.clone(), torch.zeros_like(b)
        if inside.any():
            out[inside], ld = spline(b[inside], w[inside], h[inside], d[inside], inverse)
            if ld is not None:
                logdet[inside] = ld
        x = torch.cat([out, a] if self.flip else [a, out], -1)
        if inverse:
            x = torch.linalg.solve_triangular(self.matrix().triu(), x.t(), upper=True).t()
        return x, logdet.sum(-1) + self.diag.sum()
layers = nn.ModuleList(Coupling(i % 2 == 1) for i in range(8)).cuda()
optimizer = torch.optim.AdamW(layers.parameters(), 5e-4)
for step in range(5):
    x, total = torch.randn(9000, D, device="cuda") * 1.5, 0
    for layer in layers:
        x, ld = layer(x)
        total = total + ld
    loss = -(torch.distributions.Normal(0, 1).log_prob(x).sum(-1) + total).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(layers.parameters(), 5.0)
    optimizer.step()
with torch.no_grad():
    z = torch.randn(20000, D, device="cuda")
    for layer in reversed(layers):
        z = layer(z, inverse=True)[0]
print(loss.item(), z.shape)
