"""FSDP2 on one rank with weights and moments on the host (CPUOffloadPolicy), blocks checkpointed by a wrapper, prefetch by hand, bf16; the norm of
gradients; an evaluation."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
dist.init_process_group("cpu:gloo,cuda:nccl")
torch.cuda.set_device(0)
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, d=640):
        super().__init__()
        self.a, self.b, self.qkv, self.out, self.up, self.down = nn.RMSNorm(d), nn.RMSNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 5 * d), nn.Linear(5 * d, d)
    def forward(self, x):
        q, k, v = self.qkv(self.a(x)).unflatten(-1, (3, 10, 64)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.down(F.silu(self.up(self.b(x))))
class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.blocks, self.norm, self.head = nn.Embedding(15000, 640), nn.ModuleList(Block() for _ in range(6)), nn.RMSNorm(640), nn.Linear(640, 15000, bias=False)
    def forward(self, x):
        x = self.words(x)
        for b in self.blocks:
            x = b(x)
        return self.head(self.norm(x))
model = LM()
for i in range(6):
    model.blocks[i] = checkpoint_wrapper(model.blocks[i])
settings = {"mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16), "offload_policy": CPUOffloadPolicy(pin_memory=True)}
for block in model.blocks:
    fully_shard(block, **settings)
fully_shard(model, **settings)
for a, b in zip(model.blocks[:-1], model.blocks[1:]):
    a.set_modules_to_forward_prefetch([b])
    b.set_modules_to_backward_prefetch([a])
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(4):
    ids = torch.randint(0, 15000, (5, 513), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1]).float().flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    print(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor().item())
    optimizer.step()
    optimizer.zero_grad()
with torch.no_grad():
    print(loss.item(), model(ids).argmax(-1).shape)
dist.destroy_process_group()
