"""Trainer: sentences of several lengths, label smoothing, accumulated evaluation, a cosine schedule."""
import tempfile
import torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)
class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.rows = [(torch.randint(5, 8000, (int(torch.randint(30, 250, ())),)), int(torch.randint(0, 5, ()))) for _ in range(n)]
    def __len__(self):
        return len(self.rows)
    def __getitem__(self, i):
        return self.rows[i]
def pad(rows):
    ids = torch.nn.utils.rnn.pad_sequence([r[0] for r in rows], batch_first=True)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": torch.tensor([r[1] for r in rows])}
model = BertForSequenceClassification(BertConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048,
                                                 num_labels=5))
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=32, num_train_epochs=2,
                             label_smoothing_factor=0.1, eval_strategy="epoch", eval_accumulation_steps=2, lr_scheduler_type="cosine", fp16=True,
                             report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", max_grad_norm=0.5)
Trainer(model=model, args=settings, train_dataset=Rows(96), eval_dataset=Rows(64), data_collator=pad,
        compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())}).train()
