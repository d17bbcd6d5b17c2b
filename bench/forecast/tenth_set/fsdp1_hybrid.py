"""FSDP1 with HYBRID_SHARD over a mesh of 1 x 2, CPU-made weights synced from rank 0, SHARDED_STATE_DICT and the optimizer's full state in memory."""
import functools
import os
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import ModuleWrapPolicy
from transformers import BertConfig, BertForMaskedLM
from transformers.models.bert.modeling_bert import BertLayer
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
mesh = init_device_mesh("cuda", (1, 2), mesh_dim_names=("replicate", "shard"))
model = BertForMaskedLM(BertConfig(vocab_size=20000, hidden_size=768, num_hidden_layers=8, num_attention_heads=12, intermediate_size=3072))
model = FSDP(model, auto_wrap_policy=ModuleWrapPolicy({BertLayer}), sharding_strategy=ShardingStrategy.HYBRID_SHARD, device_mesh=mesh, sync_module_states=True, device_id=rank, use_orig_params=True)
opt = torch.optim.AdamW(model.parameters(), 1e-4, fused=True)
for step in range(5):
    ids = torch.randint(5, 20000, (16, 256), device="cuda")
    labels = ids.masked_fill(torch.rand(ids.shape, device="cuda") > 0.15, -100)
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids.masked_fill(labels != -100, 4), labels=labels).loss
    loss.backward()
    model.clip_grad_norm_(1.0)
    opt.step()
    opt.zero_grad()
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    shards = model.state_dict()
    print(rank, len(shards), loss.item())
full = FSDP.full_optim_state_dict(model, opt)
dist.barrier()
dist.destroy_process_group()
