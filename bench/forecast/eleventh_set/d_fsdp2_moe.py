"""FSDP2: Mixtral with experts, groups of two layers, whole weights kept on a layer's second use, explicit prefetching, AdamW of foreach, accumulated twice."""
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import MixtralConfig, MixtralForCausalLM

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = MixtralForCausalLM(MixtralConfig(vocab_size=16000, hidden_size=640, intermediate_size=1280, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2, num_local_experts=8, num_experts_per_tok=2, output_router_logits=True, use_cache=False))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=True)
layers = list(model.model.layers)
for layer in layers:
    fully_shard(layer, mp_policy=policy, reshard_after_forward=True)
fully_shard([model.model.embed_tokens, model.model.norm, model.lm_head], mp_policy=policy, reshard_after_forward=False)
fully_shard(model, mp_policy=policy)
for a, b in zip(layers, layers[1:]):
    a.set_modules_to_forward_prefetch([b])
    b.set_modules_to_backward_prefetch([a])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=True)
torch.manual_seed(rank)
for step in range(4):
    for part in range(2):
        model.set_requires_gradient_sync(part == 1)
        ids = torch.randint(0, 16000, (4, 512), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
        (loss / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
