"""Trainer: XLM-RoBERTa tags tokens in fp16, Adafactor, smoothed labels, padded by the collator, lengths in groups, metrics, the best one loaded at the end."""
import random
import tempfile
import torch
from transformers import Trainer, TrainingArguments, XLMRobertaConfig, XLMRobertaForTokenClassification

torch.manual_seed(0)
random.seed(0)
model = XLMRobertaForTokenClassification(XLMRobertaConfig(vocab_size=40000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048, num_labels=9))
rows = [{"input_ids": torch.randint(3, 40000, (n,)), "labels": torch.randint(0, 9, (n,))} for n in (random.randint(20, 300) for _ in range(120))]


def collate(parts):
    pad = torch.nn.utils.rnn.pad_sequence
    ids = pad([p["input_ids"] for p in parts], batch_first=True, padding_value=1)
    return {"input_ids": ids, "attention_mask": (ids != 1).long(), "labels": pad([p["labels"] for p in parts], batch_first=True, padding_value=-100)}


def metrics(result):
    predicted, wanted = result.predictions.argmax(-1), result.label_ids
    return {"accuracy": float((predicted == wanted)[wanted != -100].mean())}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=16, max_steps=6, fp16=True, optim="adafactor", label_smoothing_factor=0.1, eval_strategy="steps", eval_steps=3, save_strategy="steps",
                         save_steps=3, load_best_model_at_end=True, metric_for_best_model="accuracy", logging_steps=2, report_to="none", disable_tqdm=True, lr_scheduler_type="cosine", warmup_steps=2)
Trainer(model=model, args=args, train_dataset=rows[:96], eval_dataset=rows[96:], data_collator=collate, compute_metrics=metrics).train()
