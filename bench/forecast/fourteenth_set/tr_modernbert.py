"""Trainer: ModernBERT fills in words of padded texts (whole runs hidden by a collator of its own), bf16, AdEMAMix in 8 bits, evaluated at the start and saved."""
import tempfile
import torch
from transformers import ModernBertConfig, ModernBertForMaskedLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = ModernBertConfig(vocab_size=20000, hidden_size=576, intermediate_size=864, num_hidden_layers=9, num_attention_heads=9, local_attention=128, pad_token_id=0, cls_token_id=1, sep_token_id=2, bos_token_id=1, eos_token_id=2)
model = ModernBertForMaskedLM(config)
rows = [{"input_ids": torch.randint(5, 20000, (int(n),))} for n in torch.randint(96, 640, (72,))]


def collate(batch):
    ids = torch.nn.utils.rnn.pad_sequence([row["input_ids"] for row in batch], batch_first=True)
    seen = (ids != 0).long()
    start = torch.rand(ids.shape) < 0.08
    hidden = (start | torch.roll(start, 1, 1) | torch.roll(start, 2, 1)) & seen.bool()
    return {"input_ids": ids.masked_fill(hidden, 4), "attention_mask": seen, "labels": ids.masked_fill(~hidden, -100)}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=12, per_device_eval_batch_size=24, max_steps=5, bf16=True, optim="ademamix_8bit", weight_decay=0.01, eval_strategy="steps", eval_steps=3, eval_on_start=True,
                         prediction_loss_only=True, save_strategy="steps", save_steps=5, dataloader_num_workers=2, dataloader_persistent_workers=True, logging_steps=1, report_to="none", disable_tqdm=True)
Trainer(model=model, args=args, train_dataset=rows[:60], eval_dataset=rows[60:], data_collator=collate).train()
