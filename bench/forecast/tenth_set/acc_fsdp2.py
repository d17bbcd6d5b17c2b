"""accelerate's FullyShardedDataParallelPlugin of version 2: a Mistral, transformer_based_wrap, activation checkpointing, bf16, a full state dict at the end."""
import os
import torch
from accelerate import Accelerator, FullyShardedDataParallelPlugin
from torch.utils.data import DataLoader, TensorDataset
from transformers import MistralConfig, MistralForCausalLM
plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap", transformer_cls_names_to_wrap=["MistralDecoderLayer"], reshard_after_forward=True, activation_checkpointing=True, state_dict_type="FULL_STATE_DICT", cpu_ram_efficient_loading=False)
accelerator = Accelerator(mixed_precision="bf16", fsdp_plugin=plugin)
torch.manual_seed(0)
model = MistralForCausalLM(MistralConfig(use_cache=False, vocab_size=16000, hidden_size=1024, intermediate_size=3584, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4, sliding_window=512))
opt = torch.optim.AdamW(model.parameters(), 1e-4)
loader = DataLoader(TensorDataset(torch.randint(0, 16000, (48, 768))), 4)
model, opt, loader = accelerator.prepare(model, opt, loader)
for step, (ids,) in enumerate(loader):
    loss = model(input_ids=ids, labels=ids).loss
    accelerator.backward(loss)
    accelerator.clip_grad_norm_(model.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
state = accelerator.get_state_dict(model)
accelerator.print(loss.item(), len(state))
accelerator.end_training()
