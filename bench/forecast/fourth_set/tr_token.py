"""Trainer: names in sentences with DistilBERT, Lion in 32 bits, bf16."""
import tempfile
import torch
from transformers import DistilBertConfig, DistilBertForTokenClassification, Trainer, TrainingArguments
torch.manual_seed(0)
rows = []
for _ in range(80):
    labels = torch.randint(0, 9, (160,))
    labels[torch.rand(160) < 0.3] = -100
    rows.append({"input_ids": torch.randint(5, 8000, (160,)), "attention_mask": torch.ones(160, dtype=torch.long), "labels": labels})
model = DistilBertForTokenClassification(DistilBertConfig(vocab_size=8000, dim=512, n_layers=5, n_heads=8, hidden_dim=2048, num_labels=9))
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, max_steps=6, optim="lion_32bit", bf16=True, report_to=[],
                             save_strategy="no", disable_tqdm=True, logging_strategy="no")
Trainer(model=model, args=settings, train_dataset=rows).train()
