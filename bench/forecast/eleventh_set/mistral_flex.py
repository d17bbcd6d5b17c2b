"""Mistral with a sliding window through flex attention, padded rows, bf16 weights, AdamW in loops over parameters (foreach=False)."""
import torch
from transformers import MistralConfig, MistralForCausalLM

torch.manual_seed(0)
config = MistralConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4, sliding_window=512, attn_implementation="flex_attention", use_cache=False)
model = MistralForCausalLM(config).to(device="cuda", dtype=torch.bfloat16).train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
lengths = [1024, 900, 640, 1000]
for step in range(5):
    ids = torch.randint(1, 16000, (4, 1024))
    mask = torch.zeros(4, 1024, dtype=torch.long)
    for row, n in enumerate(lengths):
        mask[row, :n] = 1
    labels = ids.masked_fill(mask == 0, -100)
    batch = {"input_ids": ids.cuda(), "attention_mask": mask.cuda(), "labels": labels.cuda()}
    loss = model(**batch).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
