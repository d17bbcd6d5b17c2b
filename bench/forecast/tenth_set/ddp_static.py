"""DDP with static_graph and reentrant checkpointing: a nanoGPT-like model, fp16 with GradScaler, clipped gradients, cosine schedule."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.checkpoint import checkpoint


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d), nn.Linear(d, d)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d), nn.Dropout(0.1))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).split(d, 2))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.n2(x))


class GPT(nn.Module):
    def __init__(self, vocab=20000, d=640, layers=8, t=512):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, d), nn.Embedding(t, d)
        self.h = nn.ModuleList(Block(d, 10) for _ in range(layers))
        self.ln, self.head = nn.LayerNorm(d), nn.Linear(d, vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, i, y):
        x = self.wte(i) + self.wpe(torch.arange(i.shape[1], device=i.device))
        for b in self.h:
            x = checkpoint(b, x, use_reentrant=True)
        return F.cross_entropy(self.head(self.ln(x)).flatten(0, 1), y.flatten())


dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(1337)
model = DDP(GPT().cuda(), device_ids=[rank], static_graph=True)
opt = torch.optim.AdamW(model.parameters(), 6e-4, betas=(0.9, 0.95), fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(opt, 100)
scaler = torch.amp.GradScaler("cuda")
torch.manual_seed(rank)
for step in range(24):
    i = torch.randint(0, 20000, (8, 513), device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss = model(i[:, :-1].contiguous(), i[:, 1:].contiguous())
    scaler.scale(loss).backward()
    scaler.unscale_(opt)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(opt)
    scaler.update()
    schedule.step()
    opt.zero_grad(set_to_none=True)
    if step % 10 == 0 and rank == 0:
        print(step, loss.item())
dist.destroy_process_group()
