"""transformers' Trainer under torchrun, DDP: DistilBERT for classes of texts, bf16, evaluation and checkpoints in the loop, compute_metrics on gathered logits."""
import tempfile
import numpy as np
import torch
from transformers import DistilBertConfig, DistilBertForSequenceClassification, Trainer, TrainingArguments
torch.manual_seed(0)


class Rows(torch.utils.data.Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return {"input_ids": torch.randint(5, 20000, (256,), generator=g), "attention_mask": torch.ones(256, dtype=torch.long), "labels": i % 8}


model = DistilBertForSequenceClassification(DistilBertConfig(vocab_size=20000, num_labels=8))
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=16, per_device_eval_batch_size=40, gradient_accumulation_steps=2, max_steps=6, bf16=True, eval_strategy="steps", eval_steps=3,
                             save_strategy="steps", save_steps=3, logging_steps=2, report_to=[], disable_tqdm=True, ddp_find_unused_parameters=False, dataloader_drop_last=True, optim="adamw_torch_fused")
trainer = Trainer(model=model, args=settings, train_dataset=Rows(512), eval_dataset=Rows(150), compute_metrics=lambda p: {"accuracy": float((np.argmax(p.predictions, -1) == p.label_ids).mean())})
trainer.train()
torch.distributed.destroy_process_group()
