"""Packed sequences through torch.nn.attention.varlen: rotary positions start anew in each document."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.varlen import varlen_attn
torch.manual_seed(0)
lengths = [811, 97, 1203, 64, 333, 588]
class Block(nn.Module):
    def __init__(self, d=640, heads=10):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.qkv, self.out = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)
        self.gate, self.up, self.down = nn.Linear(d, 1700, bias=False), nn.Linear(d, 1700, bias=False), nn.Linear(1700, d, bias=False)
    def forward(self, x, cos, sin, starts, longest):
        q, k, v = self.qkv(self.n1(x)).view(x.shape[0], 3, self.heads, -1).unbind(1)
        def turn(t):
            a, b = t.chunk(2, -1)
            return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
        x = x + self.out(varlen_attn(turn(q), turn(k), v, starts, starts, longest, longest, window_size=(-1, 0)).flatten(1))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))
embed, blocks, head = nn.Embedding(20011, 640), nn.ModuleList(Block() for _ in range(6)), nn.Linear(640, 20011, bias=False)
model = nn.ModuleList([embed, blocks, head]).cuda().bfloat16()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
starts = torch.tensor([0, *torch.tensor(lengths).cumsum(0).tolist()], dtype=torch.int32, device="cuda")
places = torch.cat([torch.arange(n) for n in lengths]).cuda()
angles = places[:, None] / 10000 ** (torch.arange(0, 64, 2, device="cuda") / 64)
cos, sin = angles.cos()[:, None].bfloat16(), angles.sin()[:, None].bfloat16()
for step in range(5):
    ids = torch.randint(0, 20011, (sum(lengths),), device="cuda")
    x = embed(ids)
    for block in blocks:
        x = block(x, cos, sin, starts, max(lengths))
    loss = F.cross_entropy(head(x).float(), ids.roll(-1))
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
