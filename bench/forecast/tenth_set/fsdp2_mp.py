"""FSDP2: a Llama of transformers, bf16 by MixedPrecisionPolicy with FP32 sums, made on meta, layers and root sharded, root kept after forward, clipped DTensor gradients."""
import os
import torch
import torch.distributed as dist
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
config = LlamaConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4)
with torch.device("meta"):
    model = LlamaForCausalLM(config)
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for layer in model.model.layers:
    fully_shard(layer, mp_policy=policy)
fully_shard(model, mp_policy=policy, reshard_after_forward=False)
model.to_empty(device="cuda")
model.model.rotary_emb = type(model.model.rotary_emb)(config).cuda()
for p in model.parameters():
    torch.nn.init.normal_(p, std=0.02)
opt = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
for step in range(6):
    ids = torch.randint(0, 16000, (4, 1024), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    if rank == 0:
        print(step, loss.item())
dist.destroy_process_group()
