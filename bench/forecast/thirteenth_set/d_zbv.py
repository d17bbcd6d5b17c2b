"""Pipelines on two cards: interleaved stages with the zero-bubble schedule, which takes gradients of inputs and of weights apart, a loss on the last stage."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import ScheduleInterleavedZeroBubble

dist.init_process_group("nccl")
rank = dist.get_rank()
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
torch.manual_seed(0)


class Mlp(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class Attend(nn.Module):
    def __init__(self, dim, heads=8):
        super().__init__()
        self.heads, self.norm, self.qkv, self.out = heads, nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        q, k, v = self.qkv(self.norm(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


DIM, VOCAB, PARTS = 768, 12000, 4
stages = []
for index in (rank, rank + 2):
    layers = [m for _ in range(3) for m in (Attend(DIM), Mlp(DIM))]
    layers = [nn.Embedding(VOCAB, DIM), *layers] if index == 0 else [*layers, nn.LayerNorm(DIM), nn.Linear(DIM, VOCAB)] if index == 3 else layers
    stages.append(PipelineStage(nn.Sequential(*layers).to(device), index, 4, device))
loss_of = lambda out, ids: F.cross_entropy(out.flatten(0, 1), ids.flatten())
schedule = ScheduleInterleavedZeroBubble(stages, PARTS, loss_fn=loss_of)
optimizers = [torch.optim.AdamW(s.submod.parameters(), lr=3e-4) for s in stages]
for step in range(4):
    ids = torch.randint(0, VOCAB, (16, 257), device=device)
    losses = []
    if rank == 0:
        schedule.step(ids[:, :-1].contiguous())
    else:
        schedule.step(target=ids[:, 1:].contiguous(), losses=losses)
    for optimizer in optimizers:
        optimizer.step()
        optimizer.zero_grad()
print(rank, [x.item() for x in losses])
dist.destroy_process_group()
