"""Trainer: RemBERT tags tokens; texts grouped by length, smoothed labels, gathered evaluations, the best of two checkpoints is loaded."""
import tempfile
import numpy as np
import torch
from transformers import RemBertConfig, RemBertForTokenClassification, Trainer, TrainingArguments

torch.manual_seed(0)
rng = np.random.default_rng(0)
model = RemBertForTokenClassification(RemBertConfig(vocab_size=30000, hidden_size=768, num_hidden_layers=8, num_attention_heads=12, intermediate_size=3072, input_embedding_size=256, num_labels=9, classifier_dropout_prob=0.1, hidden_dropout_prob=0.1))
rows = []
for n in rng.integers(20, 300, 96):
    rows.append({"input_ids": rng.integers(10, 30000, n).tolist(), "labels": rng.integers(0, 9, n).tolist(), "length": int(n)})


def collate(batch):
    most = -(-max(len(b["input_ids"]) for b in batch) // 8) * 8
    return {"input_ids": torch.tensor([b["input_ids"] + [0] * (most - len(b["input_ids"])) for b in batch]),
            "attention_mask": torch.tensor([[1] * len(b["input_ids"]) + [0] * (most - len(b["input_ids"])) for b in batch]),
            "labels": torch.tensor([b["labels"] + [-100] * (most - len(b["labels"])) for b in batch])}


def metrics(p):
    right = p.predictions.argmax(-1) == p.label_ids
    return {"accuracy": float(right[p.label_ids != -100].mean())}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=8, num_train_epochs=2, bf16=True, train_sampling_strategy="group_by_length", label_smoothing_factor=0.05,
                         eval_strategy="epoch", save_strategy="epoch", save_total_limit=1, load_best_model_at_end=True, metric_for_best_model="accuracy", report_to="none", logging_steps=3, remove_unused_columns=True)
t = Trainer(model=model, args=args, train_dataset=rows[:80], eval_dataset=rows[80:], data_collator=collate, compute_metrics=metrics)
t.train()
