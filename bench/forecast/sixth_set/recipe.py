"""A recipe like torchtune's: bf16 Llama by hand, each parameter updated in a hook of its gradient, loss in 7 chunks, activations of blocks to pinned memory, packed documents."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd.graph import save_on_cpu
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
D, H, KV, V, L, T = 704, 11, 11, 31337, 6, 900
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(D), nn.RMSNorm(D)
        self.qkv, self.o = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.w1, self.w3, self.w2 = nn.Linear(D, 1900, bias=False), nn.Linear(D, 1900, bias=False), nn.Linear(1900, D, bias=False)
    def forward(self, x, cos, sin, mask):
        q, k, v = self.qkv(self.n1(x)).view(*x.shape[:2], 3, H, 64).permute(2, 0, 3, 1, 4)
        turn = lambda t: t * cos + torch.cat((-t[..., 32:], t[..., :32]), -1) * sin
        x = x + self.o(F.scaled_dot_product_attention(turn(q), turn(k), v, attn_mask=mask).transpose(1, 2).flatten(2))
        n = self.n2(x)
        return x + self.w2(F.silu(self.w1(n)) * self.w3(n))
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks, self.norm, self.head = nn.Embedding(V, D), nn.ModuleList(Block() for _ in range(L)), nn.RMSNorm(D), nn.Linear(D, V, bias=False)
    def forward(self, ids, places, document):
        angle = places[..., None] * torch.pow(10000.0, -torch.arange(32, device="cuda") / 32)
        cos, sin = (f(torch.cat((angle, angle), -1)).to(torch.bfloat16)[:, None] for f in (torch.cos, torch.sin))
        mask = (document[:, :, None] == document[:, None]) & torch.ones(T, T, dtype=torch.bool, device="cuda").tril()
        x = self.words(ids)
        for i, block in enumerate(self.blocks):
            if i % 2:
                with save_on_cpu(pin_memory=True):
                    x = checkpoint(block, x, cos, sin, mask[:, None], use_reentrant=False)
            else:
                x = checkpoint(block, x, cos, sin, mask[:, None], use_reentrant=False)
        return self.norm(x)
with torch.device("cuda"):
    torch.set_default_dtype(torch.bfloat16)
    model = Model()
    torch.set_default_dtype(torch.float32)
optimizers = {p: torch.optim.AdamW([p], 2e-5, fused=True) for p in model.parameters()}
def update(p):
    optimizers[p].step()
    optimizers[p].zero_grad()
for p in model.parameters():
    p.register_post_accumulate_grad_hook(update)
for step in range(5):
    ids = torch.randint(0, V, (3, T + 1), device="cuda")
    document = torch.cat([torch.full((3, n), i) for i, n in enumerate((211, 99, 390, 200))], 1).cuda()
    places = torch.cat([torch.arange(n).expand(3, n) for n in (211, 99, 390, 200)], 1).cuda()
    x = model(ids[:, :-1], places, document)
    total = sum(F.cross_entropy(model.head(a).float().flatten(0, 1), b.flatten(), reduction="sum") for a, b in zip(x.chunk(7, 1), ids[:, 1:].chunk(7, 1)))
    (total / ids[:, 1:].numel()).backward()
    print(step, torch.cuda.max_memory_allocated() // 2**20)
