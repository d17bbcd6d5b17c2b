"""torch.compile of one decoding step with a cache of fixed length that is written in place, with CUDA graphs."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
size, heads, layers, words, longest, batch = 512, 8, 4, 8000, 256, 8
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.qkv, self.out, self.mlp = nn.RMSNorm(size), nn.Linear(size, 3 * size), nn.Linear(size, size), nn.Linear(size, size)
        self.register_buffer("k", torch.zeros(batch, heads, longest, size // heads))
        self.register_buffer("v", torch.zeros(batch, heads, longest, size // heads))
    def forward(self, x, place):
        q, k, v = self.qkv(self.norm(x)).view(batch, 1, 3, heads, size // heads).permute(2, 0, 3, 1, 4)
        self.k.index_copy_(2, place, k)
        self.v.index_copy_(2, place, v)
        mask = (torch.arange(longest, device=x.device) <= place).view(1, 1, 1, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, self.k, self.v, attn_mask=mask).transpose(1, 2).reshape(batch, 1, size))
        return x + self.mlp(F.silu(x))
embed, blocks = nn.Embedding(words, size).to("cuda", torch.bfloat16), nn.ModuleList(Block() for _ in range(layers)).to("cuda", torch.bfloat16)
@torch.compile(mode="reduce-overhead", fullgraph=True)
def step(word, place):
    x = embed(word)
    for block in blocks:
        x = block(x, place)
    return (x[:, -1] @ embed.weight.T).argmax(-1, keepdim=True)
with torch.no_grad():
    word = torch.zeros(batch, 1, dtype=torch.long, device="cuda")
    for i in range(48):
        word = step(word, torch.tensor([i], device="cuda")).clone()
