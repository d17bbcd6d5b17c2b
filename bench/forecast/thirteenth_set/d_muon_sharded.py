"""Muon over two cards as nanoGPT's speedrun has it: each rank makes the updates of its own matrices in bf16, all_gather brings the rest, gradients by reduce-scatter."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)


def orthogonal(g, steps=5):
    x = g.bfloat16()
    x = x.mT if g.shape[-2] > g.shape[-1] else x
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        a = x @ x.mT
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.mT if g.shape[-2] > g.shape[-1] else x


class Muon:
    def __init__(self, params, lr=0.02, momentum=0.95):
        self.lr, self.momentum, self.groups, self.kept = lr, momentum, {}, {}
        for p in params:
            self.groups.setdefault(p.shape, []).append(p)
        for group in self.groups.values():
            for p in group[rank::world]:
                self.kept[p] = torch.zeros_like(p)

    @torch.no_grad()
    def step(self):
        waits, mine = [], {}
        for group in self.groups.values():
            for at in range(0, len(group), world):
                some = group[at:at + world]
                grads = [p.grad for p in some] + [torch.zeros_like(some[0])] * (world - len(some))
                out = torch.empty_like(some[0])
                waits.append((some, out, grads, dist.reduce_scatter(out, grads, op=dist.ReduceOp.AVG, async_op=True)))
        for some, out, grads, work in waits:
            work.wait()
            got = [torch.empty_like(out, dtype=torch.bfloat16) for _ in range(world)]
            if rank < len(some):
                p = some[rank]
                self.kept[p].lerp_(out, 1 - self.momentum)
                update = orthogonal(out.lerp(self.kept[p], self.momentum)).contiguous()
            else:
                update = torch.zeros_like(out, dtype=torch.bfloat16)
            mine[tuple(some)] = got, dist.all_gather(got, update, async_op=True)
        for some, (got, work) in mine.items():
            work.wait()
            for p, u in zip(some, got):
                p.add_(u, alpha=-self.lr * max(1, p.shape[0] / p.shape[1]) ** 0.5)


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.out = (nn.Linear(dim, dim, bias=False) for _ in range(4))
        self.up, self.down = nn.Linear(dim, 4 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def forward(self, x):
        y = F.rms_norm(x, (x.shape[-1],))
        q, k, v = (m(y).unflatten(-1, (self.heads, -1)).transpose(1, 2) for m in (self.q, self.k, self.v))
        q, k = F.rms_norm(q, (q.shape[-1],)), F.rms_norm(k, (k.shape[-1],))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.relu(self.up(F.rms_norm(x, (x.shape[-1],)))).square())


model = nn.Sequential(nn.Embedding(16000, 768), *[Block(768, 6) for _ in range(9)], nn.RMSNorm(768), nn.Linear(768, 16000, bias=False)).cuda()
matrices = [p for block in model[1:10] for p in block.parameters()]
others = [p for m in (model[0], model[10], model[11]) for p in m.parameters()]
muon, adam = Muon(matrices), torch.optim.AdamW(others, lr=3e-4, betas=(0.8, 0.95), fused=True)
torch.manual_seed(rank)
for step in range(4):
    ids = torch.randint(0, 16000, (8, 513), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    for p in others:
        dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
    muon.step()
    adam.step()
    model.zero_grad(set_to_none=True)
dist.all_reduce(loss.detach())
print(rank, loss.item())
dist.destroy_process_group()
