"""FlexAttention compiled with gradients: windows, documents, a soft cap and a bias learned by distance, grouped heads, a GPT in bf16 autocast, its mask made anew."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch.manual_seed(0)
D, H, K, T = 1024, 16, 4, 2048
flex = torch.compile(flex_attention)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.RMSNorm(D), nn.RMSNorm(D)
        self.q, self.kv, self.out = nn.Linear(D, D, bias=False), nn.Linear(D, 2 * K * 64, bias=False), nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D, bias=False)
        self.cap = 30.0

    def forward(self, x, mask):
        b, t, _ = x.shape
        y = self.a(x)
        q = self.q(y).view(b, t, H, 64).transpose(1, 2)
        k, v = self.kv(y).view(b, t, 2 * K, 64).transpose(1, 2).chunk(2, 1)
        cap = self.cap

        def score(s, b, h, i, j):
            return cap * torch.tanh(s / cap) - 0.01 * (h + 1) * (i - j)

        y = flex(q, k, v, score_mod=score, block_mask=mask, enable_gqa=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.relu(self.up(self.b(x))).square())


words, head = nn.Embedding(20000, D).cuda(), nn.Linear(D, 20000, bias=False).cuda()
blocks = nn.ModuleList(Block() for _ in range(8)).cuda()
optimizer = torch.optim.AdamW([*words.parameters(), *blocks.parameters(), *head.parameters()], lr=3e-4)
for step in range(4):
    ids = torch.randint(0, 20000, (4, T + 1), device="cuda")
    document = torch.cumsum((torch.rand(4, T, device="cuda") < 0.004).int(), 1)
    mask = create_block_mask(lambda b, h, i, j: (i >= j) & (i - j < 512) & (document[b, i] == document[b, j]), 4, None, T, T, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        x = words(ids[:, :-1]).to(torch.bfloat16)
        for block in blocks:
            x = block(x, mask)
        loss = F.cross_entropy(head(x).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
