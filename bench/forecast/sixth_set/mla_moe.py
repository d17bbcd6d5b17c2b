"""DeepSeek by hand: latent attention, 24 routed experts chosen by groups without a loss for balance (biases move by counts), a shared expert, words foreseen two ahead."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D, V, H, R = 448, 14009, 7, 96
class Latent(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.q, self.kv, self.kn = nn.RMSNorm(D), nn.Linear(D, H * 80, bias=False), nn.Linear(D, R + 16, bias=False), nn.RMSNorm(R)
        self.up, self.o = nn.Linear(R, H * 128, bias=False), nn.Linear(H * 64, D, bias=False)
    def forward(self, x, cos, sin):
        n = self.norm(x)
        turn = lambda t: t * cos + torch.cat((-t[..., 8:], t[..., :8]), -1) * sin
        q = self.q(n).unflatten(-1, (H, 80)).transpose(1, 2)
        c, r = self.kv(n).split((R, 16), -1)
        k, v = self.up(self.kn(c)).unflatten(-1, (H, 128)).transpose(1, 2).split((64, 64), -1)
        q = torch.cat((q[..., :64], turn(q[..., 64:])), -1)
        k = torch.cat((k, turn(r[:, None]).expand(-1, H, -1, -1)), -1)
        return x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
class Experts(nn.Module):
    def __init__(self, n=24, k=4, inner=300):
        super().__init__()
        self.norm, self.router, self.k = nn.RMSNorm(D), nn.Linear(D, n, bias=False), k
        self.register_buffer("bias", torch.zeros(n))
        self.w1, self.w2 = nn.Parameter(torch.randn(n, D, 2 * inner) * 0.02), nn.Parameter(torch.randn(n, inner, D) * 0.02)
        self.shared = nn.Sequential(nn.Linear(D, 512), nn.SiLU(), nn.Linear(512, D))
    def forward(self, x):
        n = self.norm(x).flatten(0, 1)
        score = self.router(n).sigmoid().float()
        best = (score + self.bias).unflatten(1, (4, 6))
        allowed = torch.zeros(len(n), 4, device=x.device).scatter_(1, best.topk(2).values.sum(-1).topk(2).indices, 1).repeat_interleave(6, 1)
        chosen = (score + self.bias).masked_fill(allowed == 0, -torch.inf).topk(self.k).indices
        weight = score.gather(1, chosen)
        weight = weight / weight.sum(-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=24)
        capacity = int(1.5 * len(n) * self.k / 24)
        start = counts.cumsum(0) - counts
        place = torch.arange(len(order), device=x.device) - start[chosen.flatten()[order]]
        slot = chosen.flatten()[order] * capacity + place.clamp(max=capacity - 1)
        kept = (place < capacity).to(n.dtype)[:, None]
        sent = n.new_zeros(24 * capacity, D).index_add(0, slot, n[order // self.k] * kept)
        a, b = torch.bmm(sent.view(24, capacity, D), self.w1.to(n.dtype)).chunk(2, -1)
        back = torch.bmm(F.silu(a) * b, self.w2.to(n.dtype)).flatten(0, 1)[slot] * kept * weight.flatten()[order][:, None].to(n.dtype)
        if self.training:
            self.bias += 1e-3 * (counts.float().mean() - counts).sign()
        return x + (self.shared(n) + torch.zeros_like(n).index_add(0, order // self.k, back)).view_as(x)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.norm = nn.Embedding(V, D), nn.RMSNorm(D)
        self.blocks = nn.ModuleList(nn.ModuleList((Latent(), Experts())) for _ in range(4))
        self.join, self.more = nn.Linear(2 * D, D), nn.ModuleList((Latent(), Experts()))
    def forward(self, ids):
        t = ids.shape[1] - 2
        angle = torch.arange(t, device="cuda")[:, None] * torch.pow(10000.0, -torch.arange(8, device="cuda") / 8)
        cos, sin = angle.cos().repeat(1, 2).bfloat16(), angle.sin().repeat(1, 2).bfloat16()
        x = self.words(ids[:, :-2]).bfloat16()
        for a, e in self.blocks:
            x = e(a(x, cos, sin))
        y = self.join(torch.cat((self.norm(x), self.words(ids[:, 1:-1]).bfloat16()), -1))
        y = self.more[1](self.more[0](y, cos, sin))
        loss = lambda h, target: F.cross_entropy((self.norm(h) @ self.words.weight.T.bfloat16()).float().flatten(0, 1), target.flatten())
        return loss(x, ids[:, 1:-1]) + 0.3 * loss(y, ids[:, 2:])
model = Model().cuda()
optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.dim() > 1], "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0}], 3e-4)
for _ in range(4):
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(torch.randint(0, V, (4, 387), device="cuda"))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
