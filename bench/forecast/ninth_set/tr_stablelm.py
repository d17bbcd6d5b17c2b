"""Trainer: StableLM in fp16 with a scaler, Adafactor, smoothed labels, texts padded to the longest, logits kept by the evaluation."""
import tempfile
import torch
from transformers import StableLmConfig, StableLmForCausalLM, Trainer, TrainingArguments

torch.manual_seed(3)
model = StableLmForCausalLM(StableLmConfig(vocab_size=16000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, partial_rotary_factor=0.25, attention_dropout=0.05))
g = torch.Generator().manual_seed(1)
texts = [torch.randint(5, 16000, (int(torch.randint(100, 380, (1,), generator=g)),), generator=g) for _ in range(72)]


def collate(batch):
    ids = torch.nn.utils.rnn.pad_sequence([b["input_ids"] for b in batch], batch_first=True, padding_value=0)
    return {"input_ids": ids, "attention_mask": ids.ne(0).long(), "labels": ids.masked_fill(ids.eq(0), -100)}


class Texts(torch.utils.data.Dataset):
    def __init__(self, texts):
        self.texts = texts

    def __len__(self):
        return len(self.texts)

    def __getitem__(self, i):
        return {"input_ids": self.texts[i]}


args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, per_device_eval_batch_size=4, num_train_epochs=1, fp16=True, optim="adafactor", label_smoothing_factor=0.1, remove_unused_columns=False,
                         learning_rate=1e-3, lr_scheduler_type="inverse_sqrt", warmup_steps=5, eval_strategy="epoch", save_strategy="no", logging_steps=4, report_to="none", dataloader_num_workers=2, seed=5)
trainer = Trainer(model=model, args=args, data_collator=collate, train_dataset=Texts(texts[:64]), eval_dataset=Texts(texts[64:]), compute_metrics=lambda p: {"mean": float(p.predictions[0].mean() if isinstance(p.predictions, tuple) else p.predictions.mean())})
trainer.train()
