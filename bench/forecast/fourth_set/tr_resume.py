"""Trainer: saves a checkpoint, a second Trainer goes on from it."""
import tempfile
import torch
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments
folder = tempfile.mkdtemp()
rows = [(lambda ids: {"input_ids": ids, "labels": ids})(torch.randint(0, 8000, (256,))) for _ in range(64)]
def trainer(steps):
    torch.manual_seed(0)
    model = GPT2LMHeadModel(GPT2Config(vocab_size=8000, n_embd=512, n_layer=6, n_head=8))
    settings = TrainingArguments(output_dir=folder, per_device_train_batch_size=8, max_steps=steps, save_steps=2, save_total_limit=1, bf16=True, report_to=[],
                                 disable_tqdm=True, logging_strategy="no")
    return Trainer(model=model, args=settings, train_dataset=rows)
trainer(2).train()
trainer(5).train(resume_from_checkpoint=True)
