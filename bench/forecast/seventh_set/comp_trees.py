"""torch.compile with CUDA graphs (reduce-overhead) of a GPT in bf16: one length in training, another in an evaluation, a rate that is a tensor."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
D, V = 512, 16384
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.qkv, self.out = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D)
        self.mlp = nn.Sequential(nn.Linear(D, 4 * D), nn.GELU(approximate="tanh"), nn.Linear(4 * D, D))
    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, t, 3, 8, 64).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, D))
        return x + self.mlp(self.b(x))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.p, self.blocks, self.n = nn.Embedding(V, D), nn.Embedding(512, D), nn.Sequential(*(Block() for _ in range(6))), nn.LayerNorm(D)
    def forward(self, ids, y):
        x = self.n(self.blocks(self.w(ids) + self.p.weight[:ids.shape[1]]))
        return F.cross_entropy(F.linear(x, self.w.weight).float().flatten(0, 1), y.flatten())
model = GPT().cuda()
fast = torch.compile(model, mode="reduce-overhead", dynamic=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=torch.tensor(3e-4, device="cuda"), capturable=True, fused=True)
def run(n, training):
    ids = torch.randint(0, V, (8, n + 1), device="cuda")
    torch.compiler.cudagraph_mark_step_begin()
    with torch.autocast("cuda", torch.bfloat16):
        return fast(ids[:, :-1].contiguous(), ids[:, 1:].contiguous())
for step in range(8):
    loss = run(512, True)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(loss.item())
model.eval()
with torch.no_grad():
    print([run(384, False).item() for _ in range(4)])
