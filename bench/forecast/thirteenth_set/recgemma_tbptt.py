"""Recurrent Gemma: linear recurrences and a window of attention, Adam with decay left out for gains, weights averaged (SWA), bf16 autocast."""
import torch
from torch.optim.swa_utils import SWALR, AveragedModel
from transformers import RecurrentGemmaConfig, RecurrentGemmaForCausalLM

torch.manual_seed(0)
config = RecurrentGemmaConfig(num_hidden_layers=6, vocab_size=16000, hidden_size=640, intermediate_size=3840, num_attention_heads=10, num_key_value_heads=1, lru_width=640, attention_window_size=128)
model = RecurrentGemmaForCausalLM(config).cuda().train()
decayed = [p for p in model.parameters() if p.ndim > 1]
optimizer = torch.optim.AdamW([{"params": decayed, "weight_decay": 0.1}, {"params": [p for p in model.parameters() if p.ndim <= 1], "weight_decay": 0.0}], lr=5e-4, foreach=True)
average, slow = AveragedModel(model), SWALR(optimizer, swa_lr=1e-4, anneal_epochs=2)
for step in range(6):
    ids = torch.randint(3, 16000, (4, 384), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step >= 2:
        average.update_parameters(model)
        slow.step()
print(loss.item())
average.module.eval()
del model, optimizer
print(average.module.generate(torch.randint(3, 16000, (16, 96), device="cuda"), max_new_tokens=12, min_new_tokens=12, do_sample=True, temperature=0.8, top_k=40).shape)
