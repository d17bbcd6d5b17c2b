"""Texts of several lengths as jagged nested tensors through a transformer by hand: no padding, fused attention on ragged rows, means by text, trained
in bf16."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
random.seed(0)
D = 448
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b, self.q, self.k, self.v, self.out = nn.LayerNorm(D), nn.LayerNorm(D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D), nn.Linear(D, D)
        self.up, self.down = nn.Linear(D, 4 * D), nn.Linear(4 * D, D)
    def forward(self, x):
        y = self.a(x)
        q, k, v = (l(y).unflatten(-1, (7, 64)).transpose(1, 2) for l in (self.q, self.k, self.v))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(-2))
        return x + self.down(F.gelu(self.up(self.b(x))))
words, blocks, head = nn.Embedding(20000, D).cuda(), nn.ModuleList(Block() for _ in range(5)).cuda(), nn.Linear(D, 30).cuda()
params = [*words.parameters(), *blocks.parameters(), *head.parameters()]
optimizer = torch.optim.AdamW(params, 1e-3)
for step in range(5):
    texts = [torch.randint(0, 20000, (random.randint(15, 400),)) for _ in range(20)]
    ids = torch.nested.nested_tensor(texts, layout=torch.jagged).cuda()
    with torch.autocast("cuda", torch.bfloat16):
        x = words(ids)
        for block in blocks:
            x = block(x)
        pooled = torch.nested.to_padded_tensor(x, 0.0).float().sum(1) / torch.tensor([len(t) for t in texts], device="cuda")[:, None]
        loss = F.cross_entropy(head(pooled).float(), torch.randint(0, 30, (20,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item())
