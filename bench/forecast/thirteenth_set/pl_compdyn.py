"""torch.compile for lengths that change: dynamic shapes marked by hand, a causal transformer with ALiBi, autocast inside, an evaluation with another mode of it."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out, self.up, self.down = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x, bias):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=bias).transpose(1, 2).flatten(2))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Alibi(nn.Module):
    def __init__(self, vocab=12000, dim=512, depth=4, heads=8):
        super().__init__()
        self.embed, self.blocks, self.head = nn.Embedding(vocab, dim), nn.ModuleList(Block(dim, heads) for _ in range(depth)), nn.Linear(dim, vocab)
        self.register_buffer("slopes", 2.0 ** -torch.arange(1, heads + 1))

    def forward(self, ids):
        at = torch.arange(ids.shape[1], device=ids.device)
        far = at[None] - at[:, None]
        x = self.embed(ids)
        bias = (self.slopes[:, None, None] * far).masked_fill(far > 0, float("-inf"))[None].to(torch.bfloat16)
        for block in self.blocks:
            x = block(x, bias)
        return self.head(x)


model = Alibi().cuda()
fast = torch.compile(model, fullgraph=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for length in (256, 384, 320, 448, 384):
    ids = torch.randint(0, 12000, (8, length + 1), device="cuda")
    inputs = ids[:, :-1].contiguous()
    torch._dynamo.mark_dynamic(inputs, 1)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(fast(inputs).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    print(loss.item(), sum(fast(torch.randint(0, 12000, (4, n), device="cuda")).float().mean().item() for n in (300, 500)))
