"""Trains a small GPT: plain PyTorch, autocast to bf16, fused AdamW, clipped gradients."""
import argparse
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--layers", type=int, default=12)
p.add_argument("--width", type=int, default=768)
p.add_argument("--heads", type=int, default=12)
p.add_argument("--vocab", type=int, default=50304)
p.add_argument("--batch", type=int, default=8)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--compile", default="", help="default, reduce-overhead, max-autotune-no-cudagraphs")
p.add_argument("--evaluate", action="store_true", help="evaluate every second step")
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(a.width, bias=False), nn.LayerNorm(a.width, bias=False)
        self.qkv, self.proj = nn.Linear(a.width, 3 * a.width, bias=False), nn.Linear(a.width, a.width, bias=False)
        self.up, self.down = nn.Linear(a.width, 4 * a.width, bias=False), nn.Linear(4 * a.width, a.width, bias=False)

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, a.heads, c // a.heads).transpose(1, 2) for y in self.qkv(self.ln1(x)).split(c, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).contiguous().view(b, t, c))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(a.vocab, a.width), nn.Embedding(a.len, a.width)
        self.blocks, self.ln = nn.ModuleList(Block() for _ in range(a.layers)), nn.LayerNorm(a.width, bias=False)
        self.head = nn.Linear(a.width, a.vocab, bias=False)
        self.head.weight = self.wte.weight

    def forward(self, ids, targets):
        x = self.wte(ids) + self.wpe(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        return F.cross_entropy(self.head(self.ln(x)).view(-1, a.vocab), targets.view(-1))


torch.manual_seed(1337)
torch.set_float32_matmul_precision("high")
model = GPT().to("cuda")
decay, rest = [w for w in model.parameters() if w.dim() >= 2], [w for w in model.parameters() if w.dim() < 2]
optimizer = torch.optim.AdamW([{"params": decay}, {"params": rest, "weight_decay": 0.0}], lr=6e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
run = torch.compile(model, mode=a.compile) if a.compile else model
data = torch.randint(a.vocab, (200_000,))


def batch():
    at = torch.randint(len(data) - a.len - 1, (a.batch,))
    return [torch.stack([data[i + j:i + j + a.len] for i in at]).pin_memory().to("cuda", non_blocking=True) for j in range(2)]


for step in range(a.steps):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * 0.5 * (1 + math.cos(math.pi * step / a.steps))
    for _ in range(a.accumulate):
        with torch.autocast("cuda", torch.bfloat16):
            loss = run(*batch()) / a.accumulate
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    if a.evaluate and step % 2 == 1:
        with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
            print("evaluated", torch.stack([run(*batch()) for _ in range(2)]).mean().item())
    print(step, loss.item() * a.accumulate, flush=True)
