"""FSDP1 with original parameters: LoRA on a Phi in bf16 weights, weights resharded after backward alone, SGD of foreach, an evaluation."""
import functools
import os
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy
from transformers import PhiConfig, PhiForCausalLM
from transformers.models.phi.modeling_phi import PhiDecoderLayer

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
torch.manual_seed(0)
model = PhiForCausalLM(PhiConfig(vocab_size=20000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=10, num_attention_heads=16, use_cache=False)).to(torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=32, lora_alpha=64, target_modules=["q_proj", "k_proj", "v_proj", "dense"])).to(torch.bfloat16)
model = FSDP(model, auto_wrap_policy=functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda m: isinstance(m, PhiDecoderLayer)), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True, device_id=torch.cuda.current_device(), forward_prefetch=True)
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=1e-2, momentum=0.9)
for step in range(5):
    model.train()
    ids = torch.randint(0, 20000, (4, 512), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 2:
        model.eval()
        with torch.no_grad():
            ids = torch.randint(0, 20000, (8, 512), device="cuda")
            print(rank, model(input_ids=ids, labels=ids).loss.item())
dist.destroy_process_group()
