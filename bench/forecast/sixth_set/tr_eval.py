"""Trainer: a causal model with label smoothing, texts grouped by length, an evaluation whose logits wait on the card for three batches, metrics."""
import tempfile
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
model = LlamaForCausalLM(LlamaConfig(vocab_size=12347, hidden_size=384, intermediate_size=1031, num_hidden_layers=5, num_attention_heads=6, num_key_value_heads=2))
lengths = torch.randint(30, 260, (120,), generator=torch.Generator().manual_seed(5)).tolist()
rows = [{"input_ids": torch.randint(1, 12347, (n,)), "length": n} for n in lengths]
def collate(batch):
    longest = max(len(r["input_ids"]) for r in batch)
    ids = torch.stack([torch.nn.functional.pad(r["input_ids"], (0, longest - len(r["input_ids"]))) for r in batch])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": ids.masked_fill(ids == 0, -100)}
def metrics(answer):
    logits, labels = answer.predictions, answer.label_ids
    return {"accuracy": float((logits[:, :-1].argmax(-1) == labels[:, 1:])[labels[:, 1:] != -100].mean())}
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=7, per_device_eval_batch_size=5, max_steps=6, label_smoothing_factor=0.1,
                             train_sampling_strategy="group_by_length", length_column_name="length", eval_strategy="steps", eval_steps=3, eval_accumulation_steps=3,
                             bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_steps=2, remove_unused_columns=False, lr_scheduler_type="cosine")
Trainer(model=model, args=settings, train_dataset=rows, eval_dataset=rows[:23], data_collator=collate, compute_metrics=metrics).train()
