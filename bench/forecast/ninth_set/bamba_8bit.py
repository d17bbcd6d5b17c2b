"""Bamba, Mamba 2 and attention layers in bf16 weights, 8-bit AdamW of bitsandbytes, checkpointed, with the sums of the loss kept for a log."""
import bitsandbytes as bnb
import torch
from transformers import BambaConfig, BambaForCausalLM

torch.manual_seed(0)
config = BambaConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, attn_layer_indices=[3, 7], mamba_n_heads=32, mamba_d_head=64, mamba_d_state=64, mamba_chunk_size=128, mamba_n_groups=1, pad_token_id=0)
model = BambaForCausalLM(config).to("cuda", torch.bfloat16)
model.gradient_checkpointing_enable()
model.train()
optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=2e-4)
schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-4, total_steps=8)
total = torch.zeros((), device="cuda")
for step in range(6):
    x = torch.randint(1, 16000, (4, 1024)).cuda(non_blocking=True)
    loss = model(input_ids=x, labels=x, use_cache=False).loss
    loss.backward()
    total += loss.detach()
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
print(total / 6)
