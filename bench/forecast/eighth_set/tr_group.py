"""Trainer: texts grouped by length, label smoothing, embeddings resized, checkpointing of the reentrant kind, logits kept small for metrics, a rate that waits for a plateau, the run resumed from its checkpoint."""
import tempfile
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=12000, hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8, max_position_embeddings=512, attention_dropout=0.1, hidden_dropout=0.1))
model.resize_token_embeddings(12032, pad_to_multiple_of=64)
rows = [{"input_ids": (x := torch.randint(2, 12000, (60 + (i * 37) % 400,))), "labels": x, "length": len(x)} for i in range(64)]
def collate(batch):
    n = max(len(b["input_ids"]) for b in batch)
    pad = lambda key, v: torch.stack([torch.nn.functional.pad(b[key], (0, n - len(b[key])), value=v) for b in batch])
    return {"input_ids": pad("input_ids", 0), "labels": pad("labels", -100), "attention_mask": (pad("input_ids", -1) >= 0).long()}
folder = tempfile.mkdtemp()
def trainer(steps):
    args = TrainingArguments(output_dir=folder, per_device_train_batch_size=8, max_steps=steps, train_sampling_strategy="group_by_length", label_smoothing_factor=0.1, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}, bf16=True,
                             eval_strategy="steps", eval_steps=3, eval_accumulation_steps=1, save_steps=3, save_total_limit=1, report_to=[], disable_tqdm=True, logging_steps=2, lr_scheduler_type="reduce_lr_on_plateau", metric_for_best_model="eval_loss",
                             optim="adamw_torch_fused", max_grad_norm=0.3, dataloader_drop_last=True)
    return Trainer(model=model, args=args, train_dataset=rows, eval_dataset=rows[:12], data_collator=collate, preprocess_logits_for_metrics=lambda logits, labels: logits.argmax(-1), compute_metrics=lambda p: {"right": float((p.predictions == p.label_ids).mean())})
trainer(3).train()
trainer(6).train(resume_from_checkpoint=True)
