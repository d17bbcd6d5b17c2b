"""Qwen 3 made small by accelerate: gradients accumulated over four batches with a short last one, texts padded by batch, FP32 weights in bf16, 8-bit
Lion, an evaluation and a text between epochs."""
import random
import bitsandbytes as bnb
import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader
from transformers import Qwen3Config, Qwen3ForCausalLM, get_cosine_schedule_with_warmup
torch.manual_seed(0)
random.seed(0)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=4)
texts = [[random.randint(3, 18000) for _ in range(random.randint(30, 400))] for _ in range(42)]
def collate(rows):
    width = max(map(len, rows))
    ids = torch.tensor([r + [0] * (width - len(r)) for r in rows])
    return {"input_ids": ids, "attention_mask": (ids > 0).long(), "labels": ids.masked_fill(ids == 0, -100)}
model = Qwen3ForCausalLM(Qwen3Config(vocab_size=18000, hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=4, head_dim=64, pad_token_id=0, eos_token_id=None, bos_token_id=None))
optimizer = bnb.optim.Lion8bit(model.parameters(), 1e-4, weight_decay=0.1)
loader, val = DataLoader(texts, 4, shuffle=True, collate_fn=collate), DataLoader(texts[:13], 6, collate_fn=collate)
model, optimizer, loader, val = accelerator.prepare(model, optimizer, loader, val)
schedule = accelerator.prepare(get_cosine_schedule_with_warmup(optimizer, 1, 6))
for epoch in range(2):
    model.train()
    for batch in loader:
        with accelerator.accumulate(model):
            loss = model(**batch).loss
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
    model.eval()
    losses = []
    with torch.no_grad():
        for batch in val:
            losses.append(accelerator.gather_for_metrics(model(**batch).loss.repeat(len(batch["input_ids"]))))
        words = accelerator.unwrap_model(model).generate(torch.tensor([texts[0][:25], texts[1][:25]], device="cuda"), max_new_tokens=17, do_sample=False)
    print(epoch, torch.cat(losses).mean().item(), words.shape)
