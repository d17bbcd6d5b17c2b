"""A masked autoencoder: a quarter of the patches kept by argsort and gather, a small decoder, targets normed by patch, bf16, AdamW in groups by timm,
layers of timm with a fused attention, checkpointed every other."""
import timm
import torch
import torch.nn as nn
from timm.layers import PatchEmbed
from timm.models.vision_transformer import Block
from timm.optim import param_groups_weight_decay
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
class MAE(nn.Module):
    def __init__(self, d=576, e=384):
        super().__init__()
        self.patch, self.cls, self.mask = PatchEmbed(224, 16, 3, d), nn.Parameter(torch.zeros(1, 1, d)), nn.Parameter(torch.zeros(1, 1, e))
        self.p1, self.p2 = nn.Parameter(torch.randn(1, 197, d) * 0.02, requires_grad=False), nn.Parameter(torch.randn(1, 197, e) * 0.02, requires_grad=False)
        self.enc, self.dec = nn.ModuleList(Block(d, 9, qkv_bias=True) for _ in range(8)), nn.ModuleList(Block(e, 6, qkv_bias=True) for _ in range(3))
        self.n1, self.n2, self.into, self.out = nn.LayerNorm(d), nn.LayerNorm(e), nn.Linear(d, e), nn.Linear(e, 768)
    def forward(self, x):
        tokens = self.patch(x) + self.p1[:, 1:]
        b, n, d = tokens.shape
        noise = torch.rand(b, n, device=x.device)
        order = noise.argsort(1)
        back, keep = order.argsort(1), order[:, :n // 4]
        hidden = torch.ones(b, n, device=x.device)
        hidden[:, :n // 4] = 0
        hidden = hidden.gather(1, back)
        t = torch.cat([(self.cls + self.p1[:, :1]).expand(b, -1, -1), tokens.gather(1, keep[..., None].expand(-1, -1, d))], 1)
        for i, block in enumerate(self.enc):
            t = checkpoint(block, t, use_reentrant=False) if i % 2 else block(t)
        t = self.into(self.n1(t))
        full = torch.cat([t[:, 1:], self.mask.to(t.dtype).expand(b, n - n // 4, -1)], 1)
        t = torch.cat([t[:, :1], full.gather(1, back[..., None].expand(-1, -1, t.shape[2]))], 1) + self.p2
        for block in self.dec:
            t = block(t)
        want = x.unfold(2, 16, 16).unfold(3, 16, 16).permute(0, 2, 3, 4, 5, 1).reshape(b, n, 768)
        want = (want - want.mean(-1, keepdim=True)) / (want.var(-1, keepdim=True) + 1e-6) ** 0.5
        return (((self.out(self.n2(t))[:, 1:] - want) ** 2).mean(-1) * hidden).sum() / hidden.sum()
model = MAE().cuda()
optimizer = torch.optim.AdamW(param_groups_weight_decay(model, 0.05), 1.5e-4, betas=(0.9, 0.95))
for step in range(5):
    x = torch.randn(64, 3, 224, 224, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(x)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
