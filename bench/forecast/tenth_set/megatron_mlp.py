"""Tensor parallel by autograd functions as in Megatron: a vocabulary in halves, column and row products, a cross-entropy over ranks, gradients of norms summed in one coalesced call, async all-reduce."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


class Copy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        g = g.contiguous()
        dist.all_reduce(g, async_op=True).wait()
        return g


class Reduce(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        x = x.contiguous()
        dist.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g


class Entropy(torch.autograd.Function):
    @staticmethod
    def forward(ctx, logits, y, first):
        top = logits.max(-1).values
        dist.all_reduce(top, op=dist.ReduceOp.MAX)
        e = (logits - top[..., None]).exp()
        total = e.sum(-1)
        dist.all_reduce(total)
        outside = (y < first) | (y >= first + logits.shape[-1])
        at = (y - first).masked_fill(outside, 0)
        picked = (logits - top[..., None]).gather(-1, at[..., None]).squeeze(-1).masked_fill(outside, 0.0)
        dist.all_reduce(picked)
        e.div_(total[..., None])
        ctx.save_for_backward(e, at, outside)
        return total.log() - picked

    @staticmethod
    def backward(ctx, g):
        e, at, outside = ctx.saved_tensors
        e.scatter_add_(-1, at[..., None], -(~outside).to(e.dtype)[..., None])
        return e * g[..., None], None, None


class Block(nn.Module):
    def __init__(self, d=1024, heads=8):
        super().__init__()
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.heads, self.qkv, self.o = heads, nn.Linear(d, 3 * d // 2), nn.Linear(d // 2, d, bias=False)
        self.up, self.down = nn.Linear(d, 2 * d), nn.Linear(2 * d, d, bias=False)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(Copy.apply(self.n1(x))).chunk(3, -1))
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, -1)
        x = x + Reduce.apply(self.o(a))
        return x + Reduce.apply(self.down(F.gelu(self.up(Copy.apply(self.n2(x))))))


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
half, first = 8000, 8000 * rank
words, blocks, norm = nn.Embedding(half, 1024), nn.ModuleList(Block() for _ in range(5)), nn.LayerNorm(1024)
model = nn.ModuleDict({"words": words, "blocks": blocks, "norm": norm}).to("cuda", torch.bfloat16)
norms = [p for n, p in model.named_parameters() if "n1" in n or "n2" in n or "norm" in n]
opt = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(6):
    torch.manual_seed(step)
    i = torch.randint(0, 16000, (4, 769), device="cuda")
    inside = i[:, :-1] - first
    hidden = (inside < 0) | (inside >= half)
    x = Reduce.apply(words(inside.masked_fill(hidden, 0)).masked_fill(hidden[..., None], 0))
    for b in blocks:
        x = b(x)
    loss = Entropy.apply((Copy.apply(norm(x)) @ words.weight.T).float(), i[:, 1:], first).mean()
    loss.backward()
    flat = torch._utils._flatten_dense_tensors([p.grad for p in norms])
    dist.all_reduce(flat)
    for p, g in zip(norms, torch._utils._unflatten_dense_tensors(flat, [p.grad for p in norms])):
        p.grad.copy_(g)
    opt.step()
    opt.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
