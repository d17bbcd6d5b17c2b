"""A head and its loss as one autograd function that never holds all logits."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
class HeadLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, hidden, weight, labels, chunk):
        dh, dw, total = torch.empty_like(hidden), torch.zeros_like(weight, dtype=torch.float32), hidden.new_zeros((), dtype=torch.float32)
        for start in range(0, len(hidden), chunk):
            part = hidden[start:start + chunk]
            logits = (part @ weight.T).float()
            target = labels[start:start + chunk]
            total += F.cross_entropy(logits, target, reduction="sum")
            chance = logits.softmax(-1)
            chance[torch.arange(len(target), device=target.device), target] -= 1
            chance = chance.to(hidden.dtype)
            dh[start:start + chunk] = chance @ weight
            dw += (chance.T @ part).float()
        ctx.save_for_backward(dh, dw.to(weight.dtype))
        ctx.rows = len(hidden)
        return total / len(hidden)
    @staticmethod
    def backward(ctx, g):
        dh, dw = ctx.saved_tensors
        return dh * (g / ctx.rows), dw * (g / ctx.rows), None, None
body = nn.Sequential(*(m for _ in range(6) for m in (nn.Linear(768, 768), nn.GELU(), nn.LayerNorm(768)))).to("cuda", torch.bfloat16)
head = nn.Parameter((torch.randn(64000, 768, device="cuda") * 0.02).to(torch.bfloat16))
optimizer = torch.optim.AdamW([*body.parameters(), head], lr=1e-4)
for step in range(5):
    x, labels = torch.randn(8192, 768, device="cuda", dtype=torch.bfloat16), torch.randint(0, 64000, (8192,), device="cuda")
    HeadLoss.apply(body(x), head, labels, 1024).backward()
    optimizer.step()
    optimizer.zero_grad()
