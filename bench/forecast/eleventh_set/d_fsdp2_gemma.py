"""FSDP2: Gemma 2, layers checkpointed and compiled, then sharded, bf16 policy, weights drawn on the card from meta, fused AdamW."""
import os
import torch
import torch.distributed as dist
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import checkpoint_wrapper
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import Gemma2Config, Gemma2ForCausalLM

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
mesh = init_device_mesh("cuda", (2,), mesh_dim_names=("dp",))
torch.manual_seed(0)
model = Gemma2ForCausalLM(Gemma2Config(vocab_size=16000, hidden_size=896, intermediate_size=2560, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=112, query_pre_attn_scalar=112, sliding_window=256, use_cache=False, attn_implementation="sdpa"))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16)
for i, layer in enumerate(model.model.layers):
    model.model.layers[i] = torch.compile(checkpoint_wrapper(layer))
    fully_shard(model.model.layers[i], mesh=mesh, mp_policy=policy)
fully_shard(model, mesh=mesh, mp_policy=policy)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(5):
    ids = torch.randint(0, 16000, (4, 512), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
