"""Plain: reversible blocks by a custom autograd function that makes the inputs again, cross-entropy by a second one in pieces of the vocabulary, bf16, SGD."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
D, V = 1024, 50304


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)

    def forward(self, x):
        q, k, v = (t.unflatten(-1, (16, -1)).transpose(1, 2) for t in self.qkv(self.norm(x)).chunk(3, -1))
        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Reversible(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a, b, f, g, *weights):
        with torch.no_grad():
            a = a + f(b)
            b = b + g(a)
        ctx.parts = (f, g)
        ctx.save_for_backward(a.detach(), b.detach())
        return a, b

    @staticmethod
    def backward(ctx, da, db):
        f, g = ctx.parts
        a, b = ctx.saved_tensors
        with torch.enable_grad():
            a_in = a.detach().requires_grad_()
            ga = g(a_in)
        dg = torch.autograd.grad(ga, (a_in, *g.parameters()), db)
        with torch.no_grad():
            b = b - ga
            da = da + dg[0]
        with torch.enable_grad():
            b_in = b.detach().requires_grad_()
            fb = f(b_in)
        df = torch.autograd.grad(fb, (b_in, *f.parameters()), da)
        return da, db + df[0], None, None, *df[1:], *dg[1:]


class Pieces(torch.autograd.Function):
    @staticmethod
    def forward(ctx, h, w, y):
        total, gh, gw = h.new_zeros((), dtype=torch.float32), torch.empty_like(h), torch.zeros_like(w, dtype=torch.float32)
        for part, t, out in zip(h.split(1024), y.split(1024), gh.split(1024)):
            logits = (part @ w.T).float()
            total += F.cross_entropy(logits, t, reduction="sum")
            p = logits.softmax(-1)
            p[torch.arange(len(t), device=t.device), t] -= 1
            p = (p / len(y)).to(h.dtype)
            torch.mm(p, w, out=out)
            gw += p.T @ part
        ctx.save_for_backward(gh, gw.to(w.dtype))
        return total / len(y)

    @staticmethod
    def backward(ctx, d):
        gh, gw = ctx.saved_tensors
        return gh * d, gw * d, None


embed = nn.Embedding(V, D).cuda().bfloat16()
blocks = nn.ModuleList(nn.ModuleList([Attention(), nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 4 * D), nn.GELU(), nn.Linear(4 * D, D))]) for _ in range(12)).cuda().bfloat16()
optimizer = torch.optim.SGD([*embed.parameters(), *blocks.parameters()], lr=1e-2, momentum=0.9)
for step in range(5):
    x = torch.randint(0, V, (8, 1024), device="cuda")
    a = b = embed(x)
    for f, g in blocks:
        a, b = Reversible.apply(a, b, f, g, *f.parameters(), *g.parameters())
    loss = Pieces.apply((a + b).flatten(0, 1), embed.weight, x.roll(-1, 1).flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
