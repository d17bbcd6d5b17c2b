"""DDP on one rank: gradients compressed by PowerSGD after two plain steps, then a bf16 hook on another model; ZeroRedundancyOptimizer; accumulation
without synchronising; a loop over uneven inputs (Join)."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
dist.init_process_group("nccl", device_id=torch.device("cuda:0"))
torch.manual_seed(0)
def made():
    layer = nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.0, batch_first=True, norm_first=True)
    return nn.Sequential(nn.Embedding(12000, 512), nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(512, 12000)).cuda()
def turn(model, n=301):
    ids = torch.randint(0, 12000, (6, n), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        return F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
first = DDP(made(), device_ids=[0], bucket_cap_mb=12, gradient_as_bucket_view=True)
first.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=1.5), powerSGD_hook.powerSGD_hook)
optimizer = ZeroRedundancyOptimizer(first.parameters(), torch.optim.AdamW, lr=1e-3, parameters_as_bucket_view=True)
for step in range(5):
    with first.no_sync():
        turn(first).backward()
    loss = turn(first)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
del first, optimizer
torch.cuda.empty_cache()
second = DDP(made(), device_ids=[0], static_graph=False, find_unused_parameters=True)
second.register_comm_hook(None, default_hooks.bf16_compress_hook)
optimizer = torch.optim.SGD(second.parameters(), 0.1, momentum=0.9)
with Join([second]):
    for n in (301, 211, 333):
        loss = turn(second, n)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
print(loss.item())
dist.destroy_process_group()
