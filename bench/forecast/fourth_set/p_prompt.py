"""Prompt tuning of a small GPT-2, then an evaluation."""
import torch
from peft import PromptTuningConfig, TaskType, get_peft_model
from transformers import GPT2Config, GPT2LMHeadModel
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_embd=768, n_layer=8, n_head=12))
model = get_peft_model(model, PromptTuningConfig(task_type=TaskType.CAUSAL_LM, num_virtual_tokens=20)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-2)
for step in range(4):
    ids = torch.randint(0, 16000, (8, 256), device="cuda")
    mask = torch.ones_like(ids)
    loss = model(input_ids=ids, attention_mask=mask, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    for _ in range(2):
        ids = torch.randint(0, 16000, (16, 256), device="cuda")
        model(input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids)
