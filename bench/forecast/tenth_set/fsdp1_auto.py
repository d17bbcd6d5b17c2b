"""FSDP1 as in PyTorch's T5 tutorial: transformer_auto_wrap_policy, bf16 MixedPrecision, apply_activation_checkpointing, FULL_STATE_DICT on the host at each epoch's end."""
import functools
import os
import tempfile
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper
from torch.distributed.fsdp import BackwardPrefetch, FullStateDictConfig, FullyShardedDataParallel as FSDP, MixedPrecision, ShardingStrategy, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import T5Config, T5ForConditionalGeneration
from transformers.models.t5.modeling_t5 import T5Block
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = T5ForConditionalGeneration(T5Config(use_cache=False, vocab_size=16000, d_model=768, d_ff=2048, num_layers=6, num_heads=12, d_kv=64, decoder_start_token_id=0))
bf16 = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
model = FSDP(model, auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={T5Block}), mixed_precision=bf16,
             sharding_strategy=ShardingStrategy.FULL_SHARD, backward_prefetch=BackwardPrefetch.BACKWARD_PRE, device_id=rank, limit_all_gathers=True)
apply_activation_checkpointing(model, checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT), check_fn=lambda m: isinstance(m, T5Block))
opt = torch.optim.AdamW(model.parameters(), 2e-3)
for epoch in range(2):
    seen = torch.zeros(2, device=rank)
    for _ in range(3):
        ids, out = torch.randint(0, 16000, (8, 384), device=rank), torch.randint(0, 16000, (8, 128), device=rank)
        opt.zero_grad()
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=out).loss
        loss.backward()
        opt.step()
        seen += torch.stack([loss.detach(), torch.ones((), device=rank)])
    dist.all_reduce(seen)
    with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
        state = model.state_dict()
    if rank == 0:
        print(epoch, (seen[0] / seen[1]).item())
        torch.save(state, os.path.join(tempfile.mkdtemp(), "t5.pt"))
dist.barrier()
dist.destroy_process_group()
