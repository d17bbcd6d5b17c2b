"""FSDP1 on one rank: gradients and moments sharded (SHARD_GRAD_OP), wrapped by layer's class, bf16, its own clip, summed over two lengths, sharded
state saved."""
import functools
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, StateDictType, BackwardPrefetch
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import OPTConfig, OPTForCausalLM
from transformers.models.opt.modeling_opt import OPTDecoderLayer
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
dist.init_process_group("nccl")
torch.cuda.set_device(0)
torch.manual_seed(0)
model = OPTForCausalLM(OPTConfig(vocab_size=20000, hidden_size=512, ffn_dim=2048, num_hidden_layers=8, num_attention_heads=8, word_embed_proj_dim=512))
model = FSDP(model, auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={OPTDecoderLayer}),
             sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, mixed_precision=MixedPrecision(torch.bfloat16, torch.float32, torch.bfloat16), device_id=0,
             use_orig_params=True, limit_all_gathers=True, backward_prefetch=BackwardPrefetch.BACKWARD_POST)
optimizer = torch.optim.AdamW(model.parameters(), 2e-4)
for step in range(4):
    ids = torch.randint(2, 20000, (4, 311), device="cuda")
    model(input_ids=ids, labels=ids).loss.backward()
    ids = torch.randint(2, 20000, (4, 407), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    print(loss.item(), model.clip_grad_norm_(1.0).item())
    optimizer.step()
    optimizer.zero_grad()
with FSDP.state_dict_type(model, StateDictType.SHARDED_STATE_DICT):
    print(len(model.state_dict()), len(FSDP.optim_state_dict(model, optimizer)["state"]))
dist.destroy_process_group()
