"""Updates inside the backward pass: hooks after each gradient with an Adafactor by hand, no foreach, checkpointed GPT in bf16 weights with 0.8 billion."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint_sequential

torch.manual_seed(0)
D, V = 1536, 48000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.LayerNorm(D), nn.LayerNorm(D)
        self.qkv, self.out, self.up, self.down = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 4 * D), nn.Linear(4 * D, D)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, 12, 128).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.gelu(self.up(self.b(x)), approximate="tanh"))


words, blocks, head = nn.Embedding(V, D), nn.Sequential(*[Block() for _ in range(20)]), nn.Sequential(nn.LayerNorm(D), nn.Linear(D, V))
model = nn.ModuleList([words, blocks, head]).to("cuda", torch.bfloat16)
state = {}


@torch.no_grad()
def update(p):
    g = p.grad.float()
    square = g * g + 1e-30
    if p.ndim == 2:
        rows, columns = state.setdefault(p, (torch.zeros(p.shape[0], device="cuda"), torch.zeros(p.shape[1], device="cuda")))
        rows.lerp_(square.mean(1), 0.1)
        columns.lerp_(square.mean(0), 0.1)
        g = g * (rows / rows.mean()).rsqrt()[:, None] * columns.rsqrt()
    else:
        one, = state.setdefault(p, (torch.zeros_like(g),))
        one.lerp_(square, 0.1)
        g = g * one.rsqrt()
    g.div_((g.norm() / g.numel() ** 0.5).clamp(min=1.0))
    p.add_(g.to(p.dtype), alpha=-1e-3)
    p.grad = None


for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(4):
    ids = torch.randint(0, V, (6, 1025), device="cuda")
    x = checkpoint_sequential(blocks, 5, words(ids[:, :-1]), use_reentrant=step % 2 == 0)
    loss = F.cross_entropy(head(x).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
print(loss.item())
