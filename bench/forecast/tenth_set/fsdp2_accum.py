"""FSDP2, accumulated gradients: set_requires_gradient_sync, set_reshard_after_backward, selective checkpointing of blocks by checkpoint_wrapper, forward prefetch."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard


class Block(nn.Module):
    def __init__(self, d=1024, heads=16):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.RMSNorm(d), nn.RMSNorm(d)
        self.q, self.kv, self.o = nn.Linear(d, d, bias=False), nn.Linear(d, d // 2, bias=False), nn.Linear(d, d, bias=False)
        self.up, self.down = nn.Linear(d, 5 * d, bias=False), nn.Linear(5 * d, d, bias=False)

    def forward(self, x):
        b, t, d = x.shape
        h = self.n1(x)
        q = self.q(h).view(b, t, self.heads, -1).transpose(1, 2)
        k, v = self.kv(h).view(b, t, 2, self.heads // 4, -1).permute(2, 0, 3, 1, 4)
        x = x + self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.relu(self.up(self.n2(x))).square())


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
with torch.device("cuda"):
    model = nn.ModuleDict({"embed": nn.Embedding(8192, 1024), "blocks": nn.Sequential(*(Block() for _ in range(8))), "head": nn.Linear(1024, 8192, bias=False)})
    model = nn.Sequential(model["embed"], *model["blocks"], model["head"])
number = {m: i for i, m in enumerate(m for m in model if isinstance(m, Block))}
apply_activation_checkpointing(model, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda m: m in number and number[m] % 2 == 0)
policy = MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16)
blocks = list(model)[1:-1]
for b in blocks:
    fully_shard(b, mp_policy=policy)
fully_shard(model, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.bfloat16, output_dtype=torch.float32))
for a, b in zip(blocks, blocks[1:]):
    a.set_modules_to_forward_prefetch([b])
opt = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
for step in range(4):
    for micro in range(3):
        last = micro == 2
        model.set_requires_gradient_sync(last)
        model.set_reshard_after_backward(last)
        model.set_is_last_backward(last)
        i = torch.randint(0, 8192, (4, 769), device="cuda")
        (F.cross_entropy(model(i[:, :-1]).flatten(0, 1), i[:, 1:].flatten()) / 3).backward()
    opt.step()
    opt.zero_grad()
print(rank, torch.cuda.max_memory_allocated() >> 20)
dist.destroy_process_group()
