"""Trainer: ConvBERT classifies; the best checkpoint is loaded at the end, a callback stops early, another keeps averaged weights; batches prefetched by workers."""
import copy
import tempfile
import torch
from transformers import (ConvBertConfig, ConvBertForSequenceClassification, EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments)
torch.manual_seed(0)
class Average(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **_):
        self.kept = copy.deepcopy(model).requires_grad_(False)
    def on_step_end(self, args, state, control, model=None, **_):
        with torch.no_grad():
            for a, p in zip(self.kept.parameters(), model.parameters()):
                a.lerp_(p, 0.05)
model = ConvBertForSequenceClassification(ConvBertConfig(vocab_size=9999, hidden_size=384, embedding_size=200, num_hidden_layers=5, num_attention_heads=6,
                                                         intermediate_size=1500, max_position_embeddings=300, num_labels=7))
rows = [{"input_ids": torch.randint(1, 9999, (251,)), "labels": torch.tensor(i % 7)} for i in range(130)]
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=13, per_device_eval_batch_size=26, num_train_epochs=2, eval_strategy="steps",
                             eval_steps=4, save_strategy="steps", save_steps=4, save_total_limit=2, load_best_model_at_end=True, metric_for_best_model="eval_loss",
                             optim="adamw_torch", adam_beta2=0.98, weight_decay=0.03, dataloader_num_workers=2, dataloader_prefetch_factor=3, dataloader_drop_last=True,
                             report_to=[], disable_tqdm=True, logging_steps=3, tf32=True, bf16_full_eval=True)
trainer = Trainer(model=model, args=settings, train_dataset=rows, eval_dataset=rows[:52], callbacks=[EarlyStoppingCallback(early_stopping_patience=3), Average()])
trainer.train()
print(trainer.evaluate())
