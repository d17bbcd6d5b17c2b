"""FSDP2 on one rank: mixed precision, gradients summed over micro-batches without sharing them, the state saved."""
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
torch.manual_seed(0)
dist.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
torch.cuda.set_device(0)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, norm_first=True), 6, enable_nested_tensor=False).cuda()
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.layers:
    fully_shard(layer, mp_policy=policy, reshard_after_forward=False)
fully_shard(model, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
for step in range(4):
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        model(torch.randn(8, 256, 512, device="cuda")).float().pow(2).mean().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True))
dist.destroy_process_group()
