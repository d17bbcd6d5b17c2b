"""torch.compile for the small functions alone: norm, gate and loss; the model around them is eager, two lengths make the compiler's shapes dynamic."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
@torch.compile
def norm(x, w):
    return (x.float() * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-6)).to(x.dtype) * w
@torch.compile
def gate(a, b):
    return F.silu(a) * b
@torch.compile
def loss_of(x, w, y):
    return F.cross_entropy((30 * torch.tanh((x @ w.T).float() / 30)).flatten(0, 1), y.flatten())
D = 480
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1, self.w2 = nn.Parameter(torch.ones(D)), nn.Parameter(torch.ones(D))
        self.qkv, self.o, self.a, self.b, self.c = nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 1301), nn.Linear(D, 1301), nn.Linear(1301, D)
    def forward(self, x):
        q, k, v = self.qkv(norm(x, self.w1)).view(*x.shape[:2], 3, 8, 60).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        n = norm(x, self.w2)
        return x + self.c(gate(self.a(n), self.b(n)))
with torch.device("cuda"):
    words, blocks = nn.Embedding(19001, D).bfloat16(), nn.Sequential(*(Block() for _ in range(5))).bfloat16()
optimizer = torch.optim.AdamW([*words.parameters(), *blocks.parameters()], 1e-4, fused=True)
for step in range(5):
    ids = torch.randint(0, 19001, (6, 500 if step % 2 else 401), device="cuda")
    loss = loss_of(blocks(words(ids[:, :-1])), words.weight, ids[:, 1:])
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
