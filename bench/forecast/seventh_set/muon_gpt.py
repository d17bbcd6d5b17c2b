"""A GPT as speed runs have it: queries and keys normed, squared ReLU, values mixed in, a soft cap; torch.optim.Muon for matrices, AdamW for the rest,
bf16 weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D, H, V = 768, 6, 50304
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(D, 3 * D, bias=False), nn.Linear(D, D, bias=False)
        self.up, self.down = nn.Linear(D, 4 * D, bias=False), nn.Linear(4 * D, D, bias=False)
        self.mix = nn.Parameter(torch.tensor([0.5, 0.5]))
    def forward(self, x, v1, x0):
        x = x * 0.9 + x0 * 0.1
        b, t, _ = x.shape
        q, k, v = self.qkv(F.rms_norm(x, (D,))).view(b, t, 3, H, D // H).unbind(2)
        v1 = v if v1 is None else v1
        v = self.mix[0] * v + self.mix[1] * v1
        q, k = F.rms_norm(q, (D // H,)), F.rms_norm(k, (D // H,))
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, D))
        return x + self.down(F.relu(self.up(F.rms_norm(x, (D,)))).square()), v1
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte, self.head = nn.Embedding(V, D), nn.Linear(D, V, bias=False)
        self.blocks = nn.ModuleList(Block() for _ in range(8))
    def forward(self, ids, targets):
        x = x0 = F.rms_norm(self.wte(ids), (D,))
        v1 = None
        for block in self.blocks:
            x, v1 = block(x, v1, x0)
        logits = 15 * torch.tanh(self.head(F.rms_norm(x, (D,))).float() / 15)
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
model = GPT().cuda().bfloat16()
matrices = [p for p in model.blocks.parameters() if p.ndim == 2]
rest = [p for p in model.parameters() if not any(p is m for m in matrices)]
optimizers = [torch.optim.Muon(matrices, lr=0.02, momentum=0.95), torch.optim.AdamW(rest, lr=3e-4, betas=(0.8, 0.95), fused=True)]
for step in range(5):
    ids = torch.randint(0, V, (6, 1025), device="cuda")
    loss = model(ids[:, :-1], ids[:, 1:])
    loss.backward()
    for o in optimizers:
        o.step()
    model.zero_grad(set_to_none=True)
print(loss.item())
