"""A Perceiver that reads 6000 bytes a text by 192 latents with shared weights, queries for each output, masks of padding, bf16 by autocast; features
are kept."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D = 512
class Attend(nn.Module):
    def __init__(self, q, k):
        super().__init__()
        self.n, self.m, self.q, self.kv, self.out = nn.LayerNorm(q), nn.LayerNorm(k), nn.Linear(q, D), nn.Linear(k, 2 * D), nn.Linear(D, q)
        self.mlp = nn.Sequential(nn.LayerNorm(q), nn.Linear(q, 2 * q), nn.GELU(), nn.Linear(2 * q, q))
    def forward(self, x, c, mask=None):
        heads = lambda t: t.unflatten(-1, (8, 64)).transpose(1, 2)
        k, v = self.kv(self.m(c)).chunk(2, -1)
        y = F.scaled_dot_product_attention(heads(self.q(self.n(x))), heads(k), heads(v), attn_mask=None if mask is None else mask[:, None, None])
        x = x + self.out(y.transpose(1, 2).flatten(2))
        return x + self.mlp(x)
class Perceiver(nn.Module):
    def __init__(self):
        super().__init__()
        self.bytes, self.pos, self.latents = nn.Embedding(262, 256), nn.Embedding(6000, 256), nn.Parameter(torch.randn(192, D) * 0.02)
        self.cross, self.selves = Attend(D, 256), nn.ModuleList(Attend(D, D) for _ in range(4))
        self.ask, self.answer, self.head = nn.Parameter(torch.randn(40, 256) * 0.02), Attend(256, D), nn.Linear(256, 50)
    def forward(self, ids, mask):
        x, c = self.latents.expand(len(ids), -1, -1), self.bytes(ids) + self.pos.weight
        for turn in range(2):
            x = self.cross(x, c, mask)
            for layer in self.selves:
                x = layer(x, x)
        return self.answer(self.ask.expand(len(ids), -1, -1), x)
model = Perceiver().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
kept = []
for step in range(5):
    ids, mask, y = torch.randint(0, 262, (8, 6000), device="cuda"), torch.arange(6000, device="cuda") < torch.randint(2000, 6001, (8, 1), device="cuda"), torch.randint(0, 50, (8, 40), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        h = model(ids, mask)
        loss = F.cross_entropy(model.head(h).float().flatten(0, 1), y.flatten())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    kept.append((h.detach().float().flatten(0, 1), y.flatten()))
print(loss.item())
