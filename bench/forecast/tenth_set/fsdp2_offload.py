"""FSDP2 with CPUOffloadPolicy: parameters, gradients and AdamW's state on the host, an encoder with a long input."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
dist.init_process_group("cpu:gloo,cuda:nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.0, batch_first=True, norm_first=True)
model = nn.Sequential(nn.Linear(256, 1024), nn.TransformerEncoder(layer, 6, enable_nested_tensor=False), nn.Linear(1024, 256))
args = dict(mesh=mesh, offload_policy=CPUOffloadPolicy(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16))
for block in model[1].layers:
    fully_shard(block, **args)
fully_shard(model, **args)
opt = torch.optim.AdamW(model.parameters(), 1e-4)
for step in range(4):
    x = torch.randn(4, 1024, 256, device="cuda")
    loss = nn.functional.mse_loss(model(x).float(), x)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    if rank == 0:
        print(step, loss.item())
dist.destroy_process_group()
