"""torch.compile of each block of a ViT alone, the optimizer's step compiled too, fp16 with a scaler, stochastic depth, MixUp with soft labels, a last
partial batch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D = 384
class Block(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.a, self.b, self.qkv, self.out, self.drop = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D), drop
        self.mlp = nn.Sequential(nn.Linear(D, 1536), nn.GELU(), nn.Linear(1536, D))
        self.ga, self.gb = nn.Parameter(torch.full((D,), 1e-4)), nn.Parameter(torch.full((D,), 1e-4))
    def path(self, x):
        if not self.training or self.drop == 0:
            return x
        return x * (torch.rand(x.shape[0], 1, 1, device=x.device) >= self.drop).to(x.dtype) / (1 - self.drop)
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, 6, 64).permute(2, 0, 3, 1, 4)
        x = x + self.path(self.ga * self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, D)))
        return x + self.path(self.gb * self.mlp(self.b(x)))
class ViT(nn.Module):
    def __init__(self):
        super().__init__()
        self.patch, self.cls, self.pos = nn.Conv2d(3, D, 16, 16), nn.Parameter(torch.zeros(1, 1, D)), nn.Parameter(torch.zeros(1, 145, D))
        self.blocks, self.norm, self.head = nn.ModuleList(Block(0.1) for i in range(8)), nn.LayerNorm(D), nn.Linear(D, 1000)
    def forward(self, x):
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls.expand(len(x), -1, -1), x], 1) + self.pos
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x[:, 0]))
model = ViT().cuda()
for block in model.blocks:
    block.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(1e-3), weight_decay=0.05)
scaler = torch.amp.GradScaler()
for n in (48, 48, 48, 48, 19):
    x, y = torch.randn(n, 3, 192, 192, device="cuda"), F.one_hot(torch.randint(0, 1000, (n,), device="cuda"), 1000).float()
    lam = torch.distributions.Beta(0.8, 0.8).sample().item()
    x, y = lam * x + (1 - lam) * x.flip(0), lam * y + (1 - lam) * y.flip(0)
    with torch.autocast("cuda", torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(n, loss.item())
