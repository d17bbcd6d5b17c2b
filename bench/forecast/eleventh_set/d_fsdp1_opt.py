"""FSDP1: OPT by layers in bf16, the next layer fetched after a layer's backward, activations recomputed by wrapping, gradients clipped, a full checkpoint gathered."""
import functools
import os
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper
from torch.distributed.fsdp import BackwardPrefetch, FullStateDictConfig, FullyShardedDataParallel as FSDP, MixedPrecision, StateDictType
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from transformers import OPTConfig, OPTForCausalLM
from transformers.models.opt.modeling_opt import OPTDecoderLayer

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = OPTForCausalLM(OPTConfig(vocab_size=16000, hidden_size=1024, ffn_dim=4096, num_hidden_layers=8, num_attention_heads=16, word_embed_proj_dim=1024, dropout=0.1, use_cache=False))
half = MixedPrecision(param_dtype=torch.bfloat16, reduce_dtype=torch.bfloat16, buffer_dtype=torch.bfloat16)
model = FSDP(model, auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={OPTDecoderLayer}), mixed_precision=half, backward_prefetch=BackwardPrefetch.BACKWARD_POST, device_id=rank, sync_module_states=True, limit_all_gathers=True)
apply_activation_checkpointing(model, checkpoint_wrapper_fn=functools.partial(checkpoint_wrapper, checkpoint_impl=CheckpointImpl.NO_REENTRANT), check_fn=lambda m: isinstance(m, OPTDecoderLayer))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(5):
    ids = torch.randint(0, 16000, (4, 768), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    model.clip_grad_norm_(1.0)
    optimizer.step()
    optimizer.zero_grad()
with FSDP.state_dict_type(model, StateDictType.FULL_STATE_DICT, FullStateDictConfig(offload_to_cpu=True, rank0_only=True)):
    state = model.state_dict()
print(rank, loss.item(), len(state))
dist.destroy_process_group()
