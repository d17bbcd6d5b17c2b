"""Mamba 2 by hand: the state-space dual form in chunks by einsum, segment sums, a causal convolution of one dimension, gated norms."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D, E, N, P, C = 384, 768, 64, 48, 77
H = E // P
def segsum(a):
    t = a.shape[-1]
    a = a[..., None].expand(*a.shape, t).masked_fill(~torch.ones(t, t, dtype=torch.bool, device=a.device).tril(-1), 0)
    return a.cumsum(-2).masked_fill(~torch.ones(t, t, dtype=torch.bool, device=a.device).tril(), -torch.inf)
def ssd(x, a, b, c):
    x, a, b, c = (t.unflatten(1, (-1, C)) for t in (x, a, b, c))
    a = a.permute(0, 3, 1, 2)
    total = a.cumsum(-1)
    y = torch.einsum("bcln,bcsn,bhcls,bcshp->bclhp", c, b, segsum(a).exp(), x)
    states = torch.einsum("bcln,bhcl,bclhp->bchpn", b, (total[..., -1:] - total).exp(), x)
    states = torch.cat((torch.zeros_like(states[:, :1]), states), 1)
    decay = segsum(F.pad(total[..., -1], (1, 0))).exp()
    states = torch.einsum("bhzc,bchpn->bzhpn", decay, states)
    return (y + torch.einsum("bcln,bchpn,bhcl->bclhp", c, states[:, :-1], total.exp())).flatten(1, 2), states[:, -1]
class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inner = nn.RMSNorm(D), nn.Linear(D, 2 * E + 2 * N + H, bias=False)
        self.conv = nn.Conv1d(E + 2 * N, E + 2 * N, 4, groups=E + 2 * N, padding=3)
        self.bias, self.log, self.skip = nn.Parameter(torch.zeros(H)), nn.Parameter(torch.zeros(H)), nn.Parameter(torch.ones(H))
        self.gated, self.out = nn.RMSNorm(E), nn.Linear(E, D, bias=False)
    def forward(self, u):
        z, xbc, dt = self.inner(self.norm(u)).split((E, E + 2 * N, H), -1)
        xbc = F.silu(self.conv(xbc.transpose(1, 2))[..., :u.shape[1]].transpose(1, 2))
        x, b, c = xbc.split((E, N, N), -1)
        dt, x = F.softplus(dt.float() + self.bias), x.unflatten(-1, (H, P))
        y, _ = ssd(x.float() * dt[..., None], -self.log.exp() * dt, b.float(), c.float())
        y = (y + x * self.skip[:, None]).flatten(2).to(z.dtype)
        return u + self.out(self.gated(y * F.silu(z)))
model = nn.Sequential(nn.Embedding(9973, D), *(Mixer() for _ in range(4)), nn.LayerNorm(D), nn.Linear(D, 9973)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3, foreach=True)
for _ in range(4):
    ids = torch.randint(0, 9973, (3, 7 * C + 1), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
