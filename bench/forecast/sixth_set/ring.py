"""Long context: 12000 places, attention by chunks of keys joined by their log-sums in an autograd function, as in a ring of one; layers checkpointed, loss in chunks."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint
torch.manual_seed(0)
flash, back = torch.ops.aten._scaled_dot_product_flash_attention, torch.ops.aten._scaled_dot_product_flash_attention_backward
class Ring(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, piece):
        outs, sums = [], []
        for i, a in enumerate(q.split(piece, 2)):
            out = total = None
            for j in range(i + 1):
                o, s, *_ = flash(a, k[:, :, j * piece:(j + 1) * piece], v[:, :, j * piece:(j + 1) * piece], 0.0, i == j, False)
                if out is None:
                    out, total = o.float(), s
                else:
                    new = torch.logaddexp(total, s)
                    out = out * (total - new).exp()[..., None] + o.float() * (s - new).exp()[..., None]
                    total = new
            outs.append(out.to(q.dtype)), sums.append(total)
        out = torch.cat(outs, 2)
        ctx.save_for_backward(q, k, v, out, torch.cat(sums, 2))
        ctx.piece = piece
        return out
    @staticmethod
    def backward(ctx, g):
        q, k, v, out, total = ctx.saved_tensors
        dq, dk, dv = torch.zeros_like(q), torch.zeros_like(k), torch.zeros_like(v)
        n, seed = ctx.piece, torch.zeros(2, dtype=torch.uint64, device=q.device)
        for i in range(0, q.shape[2], n):
            rows = slice(i, i + n)
            for j in range(0, i + 1, n):
                keys = slice(j, j + n)
                a, b, c = back(g[:, :, rows], q[:, :, rows], k[:, :, keys], v[:, :, keys], out[:, :, rows], total[:, :, rows].contiguous(), None, None, q[:, :, rows].shape[2],
                               k[:, :, keys].shape[2], 0.0, i == j, seed[0], seed[1])
                dq[:, :, rows] += a
                dk[:, :, keys] += b
                dv[:, :, keys] += c
        return dq, dk, dv, None
D = 384
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.n, self.qkv, self.o, self.m = nn.LayerNorm(D), nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Sequential(nn.LayerNorm(D), nn.Linear(D, 1333), nn.GELU(), nn.Linear(1333, D))
    def forward(self, x):
        q, k, v = self.qkv(self.n(x)).view(*x.shape[:2], 3, 6, 64).permute(2, 0, 3, 1, 4)
        x = x + self.o(Ring.apply(q, k, v, 2500).transpose(1, 2).flatten(2))
        return x + torch.cat([self.m(t) for t in x.split(3100, 1)], 1)
words, blocks = nn.Embedding(23003, D).cuda().bfloat16(), nn.ModuleList(Block() for _ in range(4)).cuda().bfloat16()
optimizer = torch.optim.SGD([*words.parameters(), *blocks.parameters()], 0.01, momentum=0.9, weight_decay=1e-4)
for _ in range(3):
    ids = torch.randint(0, 23003, (1, 12001), device="cuda")
    x = words(ids[:, :-1])
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    piece = lambda a, b: F.cross_entropy((a @ words.weight.T).float(), b, reduction="sum")
    loss = sum(checkpoint(piece, a, b, use_reentrant=False) for a, b in zip(x[0].split(1700), ids[0, 1:].split(1700))) / 12000
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
