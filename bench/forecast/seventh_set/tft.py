"""A temporal fusion transformer: gated residual networks choose variables, LSTMs before and after now, attention over time, quantiles, FP32, a rate
that falls on a plateau, early stopping."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D = 128
class GRN(nn.Module):
    def __init__(self, i, o=D, c=False):
        super().__init__()
        self.a, self.c, self.b, self.g, self.n = nn.Linear(i, D), nn.Linear(D, D, bias=False) if c else None, nn.Linear(D, D), nn.Linear(D, 2 * o), nn.LayerNorm(o)
        self.skip = nn.Identity() if i == o else nn.Linear(i, o)
    def forward(self, x, c=None):
        y = self.a(x)
        if c is not None:
            y = y + self.c(c)
        return self.n(self.skip(x) + F.glu(self.g(F.dropout(self.b(F.elu(y)), 0.1, self.training)), -1))
class Choose(nn.Module):
    def __init__(self, n):
        super().__init__()
        self.weights, self.each = GRN(n * D, n, True), nn.ModuleList(GRN(D) for _ in range(n))
    def forward(self, xs, c):
        w = self.weights(torch.cat(xs, -1), c).softmax(-1)
        return sum(w[..., i:i + 1] * g(x) for i, (g, x) in enumerate(zip(self.each, xs)))
class TFT(nn.Module):
    def __init__(self, past=6, known=3):
        super().__init__()
        self.p, self.k, self.series = nn.ModuleList(nn.Linear(1, D) for _ in range(past)), nn.ModuleList(nn.Linear(1, D) for _ in range(known)), nn.Embedding(370, D)
        self.cp, self.ck, self.static = Choose(past + known), Choose(known), nn.ModuleList(GRN(D) for _ in range(4))
        self.enc, self.dec, self.gate, self.norm = nn.LSTM(D, D, batch_first=True), nn.LSTM(D, D, batch_first=True), nn.Linear(D, 2 * D), nn.LayerNorm(D)
        self.rich, self.attn, self.last, self.out = GRN(D, c=True), nn.MultiheadAttention(D, 4, 0.1, batch_first=True), GRN(D), nn.Linear(D, 3)
    def forward(self, past, known, s):
        c = [g(self.series(s)) for g in self.static]
        p, k = [l(past[..., i:i + 1]) for i, l in enumerate(self.p)], [l(known[..., i:i + 1]) for i, l in enumerate(self.k)]
        T = past.shape[1]
        a, b = self.cp(p + [x[:, :T] for x in k], c[0][:, None]), self.ck([x[:, T:] for x in k], c[0][:, None])
        h, state = self.enc(a, (c[1][None], c[2][None]))
        x = torch.cat([h, self.dec(b, state)[0]], 1)
        x = self.norm(F.glu(self.gate(x), -1) + torch.cat([a, b], 1))
        x = self.rich(x, c[3][:, None])
        mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)[T:]
        y, w = self.attn(x[:, T:], x, x, attn_mask=mask, average_attn_weights=True)
        return self.out(self.last(x[:, T:] + y)), w
model = TFT().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
schedule = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0, factor=0.5)
q, best = torch.tensor([0.1, 0.5, 0.9], device="cuda"), float("inf")
for epoch in range(3):
    model.train()
    for _ in range(3):
        past, known, s, y = torch.randn(72, 168, 6).cuda(), torch.randn(72, 192, 3).cuda(), torch.randint(0, 370, (72,)).cuda(), torch.randn(72, 24, 1).cuda()
        out, _ = model(past, known, s)
        e = y - out
        loss = torch.max(q * e, (q - 1) * e).mean()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
    model.eval()
    with torch.no_grad():
        out, w = model(torch.randn(200, 168, 6).cuda(), torch.randn(200, 192, 3).cuda(), torch.randint(0, 370, (200,)).cuda())
        v = out.abs().mean().item()
    schedule.step(v)
    best = min(best, v)
print(best, w.shape)
