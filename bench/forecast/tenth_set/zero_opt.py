"""ZeroRedundancyOptimizer: DDP with AdamW's state over ranks, parameters_as_bucket_view, consolidated on rank 0 for a checkpoint."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = DDP(nn.Sequential(*(m for i in range(10) for m in (nn.Linear(2000, 2000), nn.SiLU()))).cuda(), device_ids=[rank], gradient_as_bucket_view=True)
opt = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=torch.optim.AdamW, lr=1e-3, weight_decay=0.01, parameters_as_bucket_view=True)
for step in range(8):
    x = torch.randn(1024, 2000, device="cuda")
    loss = nn.functional.l1_loss(model(x), x)
    model.zero_grad(set_to_none=True)
    loss.backward()
    opt.step()
opt.consolidate_state_dict(to=0)
if rank == 0:
    torch.save({"model": model.module.state_dict(), "optimizer": opt.state_dict()}, os.path.join(tempfile.mkdtemp(), "all.pt"))
    print(loss.item())
dist.barrier()
dist.destroy_process_group()
