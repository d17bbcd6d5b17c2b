"""FSDP2 on one rank as a recipe: meta device, blocks kept gathered after forward, accumulation, clipping of DTensors, full state dicts gathered to the host, an evaluation, DCP saved on a thread."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict, get_optimizer_state_dict
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import LlamaConfig, LlamaForCausalLM
os.environ |= {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
dist.init_process_group("cpu:gloo,cuda:nccl", rank=0, world_size=1)
torch.cuda.set_device(0)
torch.manual_seed(0)
with torch.device("meta"):
    model = LlamaForCausalLM(LlamaConfig(vocab_size=14011, hidden_size=640, intermediate_size=1800, num_hidden_layers=5, num_attention_heads=10, num_key_value_heads=5, tie_word_embeddings=False))
policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
for i, layer in enumerate(model.model.layers):
    fully_shard(layer, mp_policy=policy, reshard_after_forward=i < 3)
fully_shard(model, mp_policy=policy, reshard_after_forward=False)
model.to_empty(device="cuda")
model.init_weights()
model.model.rotary_emb.__init__(model.config, device="cuda")
optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
for step in range(4):
    for micro in range(2):
        model.set_requires_gradient_sync(micro == 1)
        ids = torch.randint(0, 14011, (3, 421), device="cuda")
        logits = model(input_ids=ids[:, :-1]).logits
        (F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten()) / 2).backward()
    print(torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0).full_tensor().item())
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    print(model(input_ids=ids).logits.shape)
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
weights, moments = get_model_state_dict(model, options=options), get_optimizer_state_dict(model, optimizer, options=options)
print(len(weights), len(moments["state"]))
dcp.async_save({"model": get_model_state_dict(model)}, checkpoint_id=tempfile.mkdtemp()).result()
model.train()
F.cross_entropy(model(input_ids=ids[:, :-1]).logits.float().flatten(0, 1), ids[:, 1:].flatten()).backward()
optimizer.step()
dist.destroy_process_group()
