"""torch.compile with half the memory for activations: the partitioner chooses what is computed again."""
import torch
import torch._functorch.config
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
torch._functorch.config.activation_memory_budget = 0.5
class Block(nn.Module):
    def __init__(self, size=512):
        super().__init__()
        self.a, self.b, self.qkv, self.out = nn.LayerNorm(size), nn.LayerNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.mlp = nn.Sequential(nn.Linear(size, 4 * size), nn.GELU(), nn.Linear(4 * size, size))
    def forward(self, x):
        b, n, c = x.shape
        q, k, v = self.qkv(self.a(x)).view(b, n, 3, 8, c // 8).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, c))
        return x + self.mlp(self.b(x))
model = nn.Sequential(*(Block() for _ in range(3))).cuda()
compiled = torch.compile(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = compiled(torch.randn(8, 512, 512, device="cuda")).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
