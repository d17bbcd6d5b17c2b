"""Trainer with rarer options: caches emptied every third step, an evaluation before training, metrics by batch, 8-bit AdamW paged, warm-up then
stable then decay, input tokens counted, noise on embeddings, a short last batch."""
import tempfile
import torch
from transformers import OlmoConfig, OlmoForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
model = OlmoForCausalLM(OlmoConfig(vocab_size=20500, hidden_size=512, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=8, pad_token_id=1, eos_token_id=None))
rows = [{"input_ids": (x := torch.randint(2, 20500, (281 if i % 5 else 355,))), "labels": x} for i in range(43)]
def collate(batch):
    n = max(len(b["input_ids"]) for b in batch)
    pad = lambda key, v: torch.stack([torch.nn.functional.pad(b[key], (0, n - len(b[key])), value=v) for b in batch])
    return {"input_ids": pad("input_ids", 1), "labels": pad("labels", -100), "attention_mask": (pad("input_ids", 1) != 1).long()}
seen = []
def metrics(p, compute_result):
    seen.append((p.predictions.argmax(-1) == p.label_ids).float().mean().item())
    return {"right": sum(seen) / len(seen)} if compute_result else {}
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=6, per_device_eval_batch_size=5, num_train_epochs=2, optim="paged_adamw_8bit", torch_empty_cache_steps=3, eval_strategy="epoch",
                         eval_on_start=True, batch_eval_metrics=True, lr_scheduler_type="warmup_stable_decay", lr_scheduler_kwargs={"num_decay_steps": 4, "num_stable_steps": 6}, warmup_steps=3, include_num_input_tokens_seen="all",
                         neftune_noise_alpha=5, bf16=True, max_grad_norm=0.5, save_strategy="no", report_to=[], disable_tqdm=True, logging_steps=2, dataloader_num_workers=1, dataloader_persistent_workers=True, gradient_accumulation_steps=3)
trainer = Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:17], data_collator=collate, compute_metrics=metrics)
trainer.train()
print(trainer.evaluate())
