"""FSDP2 with peft: LoRA on a frozen bf16 Qwen 2, adapters in FP32, only their weights gathered and saved at the end."""
import os
import tempfile
import torch
import torch.distributed as dist
from peft import LoraConfig, get_peft_model
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_model_state_dict
from torch.distributed.fsdp import fully_shard
from transformers import Qwen2Config, Qwen2ForCausalLM
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = Qwen2ForCausalLM(Qwen2Config(vocab_size=16000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=2)).to(torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, target_modules="all-linear", task_type="CAUSAL_LM"), autocast_adapter_dtype=False)
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
for layer in model.base_model.model.model.layers:
    fully_shard(layer)
fully_shard(model)
opt = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-4)
for step in range(5):
    ids = torch.randint(0, 16000, (4, 768), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    opt.step()
    opt.zero_grad()
    if rank == 0:
        print(step, loss.item())
state = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True, cpu_offload=True, ignore_frozen_params=True))
if rank == 0:
    torch.save(state, os.path.join(tempfile.mkdtemp(), "adapter.pt"))
dist.destroy_process_group()
