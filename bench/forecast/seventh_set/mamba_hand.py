"""Mamba 1 by hand: the selective scan as a loop over places in chunks that are computed again, causal depthwise convolutions, bf16 by autocast, then
words one by one with a state."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
D, I, N, R, V = 384, 768, 16, 24, 20011
def scan(h, dt, a, b, c, x):
    out = []
    for t in range(x.shape[1]):
        h = torch.exp(dt[:, t, :, None] * a) * h + dt[:, t, :, None] * b[:, t, None] * x[:, t, :, None]
        out.append((h * c[:, t, None]).sum(-1))
    return h, torch.stack(out, 1)
class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.inp, self.out = nn.RMSNorm(D), nn.Linear(D, 2 * I, bias=False), nn.Linear(I, D, bias=False)
        self.conv, self.proj, self.dt = nn.Conv1d(I, I, 4, groups=I, padding=3), nn.Linear(I, R + 2 * N, bias=False), nn.Linear(R, I)
        self.log_a, self.skip = nn.Parameter(torch.arange(1., N + 1).log().repeat(I, 1)), nn.Parameter(torch.ones(I))
    def forward(self, u, state=None):
        x, z = self.inp(self.norm(u)).chunk(2, -1)
        if state is None:
            x = F.silu(self.conv(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2))
        else:
            state[0] = torch.cat([state[0][..., 1:], x.transpose(1, 2)], -1)
            x = F.silu((state[0] * self.conv.weight[:, 0]).sum(-1) + self.conv.bias)[:, None]
        dt, b, c = self.proj(x).split([R, N, N], -1)
        dt, a = F.softplus(self.dt(dt)).float(), -self.log_a.exp()
        if state is None:
            h, ys = x.new_zeros(x.shape[0], I, N, dtype=torch.float32), []
            for s in range(0, x.shape[1], 32):
                cut = slice(s, s + 32)
                h, y = checkpoint(scan, h, dt[:, cut], a, b[:, cut].float(), c[:, cut].float(), x[:, cut].float(), use_reentrant=False)
                ys.append(y)
            y = torch.cat(ys, 1)
        else:
            state[1], y = scan(state[1], dt, a, b.float(), c.float(), x.float())
        return u + self.out(((y + x * self.skip) * F.silu(z)).to(z.dtype))
words, layers, norm = nn.Embedding(V, D).cuda(), nn.ModuleList(Mixer() for _ in range(4)).cuda(), nn.RMSNorm(D).cuda()
optimizer = torch.optim.AdamW([*words.parameters(), *layers.parameters(), *norm.parameters()], 1e-3)
for step in range(4):
    ids = torch.randint(0, V, (8, 193), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        x = words(ids[:, :-1])
        for layer in layers:
            x = layer(x)
        loss = F.cross_entropy((norm(x) @ words.weight.t()).flatten(0, 1), ids[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.inference_mode():
    states = [[torch.zeros(8, I, 4, device="cuda"), torch.zeros(8, I, N, device="cuda")] for _ in layers]
    ids = torch.zeros(8, 1, dtype=torch.long, device="cuda")
    for t in range(24):
        x = words(ids[:, -1:])
        for layer, s in zip(layers, states):
            x = layer(x, s)
        ids = torch.cat([ids, (norm(x) @ words.weight.t()).argmax(-1)], 1)
print(loss.item(), ids.shape)
