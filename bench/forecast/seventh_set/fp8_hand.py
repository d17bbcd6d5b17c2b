"""Linear layers in float8 by hand: torch._scaled_mm with scales from the largest value of each tensor, E4M3 forward and E5M2 for gradients, bf16
weights, SwiGLU blocks, AdamW by foreach."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
def quantised(x, kind):
    top = torch.finfo(kind).max
    scale = x.abs().amax().float().clamp(min=1e-12) / top
    return (x.float() / scale).clamp(-top, top).to(kind), scale
class Mm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        (x8, xs), (w8, ws) = quantised(x, torch.float8_e4m3fn), quantised(w, torch.float8_e4m3fn)
        ctx.save_for_backward(x8, xs, w8, ws)
        return torch._scaled_mm(x8, w8.t(), scale_a=xs, scale_b=ws, out_dtype=torch.bfloat16, use_fast_accum=True)
    @staticmethod
    def backward(ctx, g):
        x8, xs, w8, ws = ctx.saved_tensors
        g8, gs = quantised(g, torch.float8_e5m2)
        dx = torch._scaled_mm(g8, w8.t().contiguous().t(), scale_a=gs, scale_b=ws, out_dtype=torch.bfloat16)
        dw = torch._scaled_mm(g8.t().contiguous(), x8.t().contiguous().t(), scale_a=gs, scale_b=xs, out_dtype=torch.bfloat16)
        return dx, dw
class Linear(nn.Linear):
    def forward(self, x):
        return Mm.apply(x.flatten(0, -2), self.weight).view(*x.shape[:-1], -1)
D = 1024
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.RMSNorm(D), nn.RMSNorm(D)
        self.qkv, self.out, self.gate, self.down = Linear(D, 3 * D, bias=False), Linear(D, D, bias=False), Linear(D, 5632, bias=False), Linear(2816, D, bias=False)
    def forward(self, x):
        q, k, v = self.qkv(self.a(x)).unflatten(-1, (3, 8, 128)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        g, u = self.gate(self.b(x)).chunk(2, -1)
        return x + self.down(F.silu(g) * u)
words, blocks, norm = nn.Embedding(32000, D), nn.ModuleList(Block() for _ in range(6)), nn.RMSNorm(D)
model = nn.ModuleList([words, blocks, norm]).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
for step in range(5):
    ids = torch.randint(0, 32000, (4, 1025), device="cuda")
    x = words(ids[:, :-1])
    for block in blocks:
        x = block(x)
    loss = F.cross_entropy(F.linear(norm(x), words.weight).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
