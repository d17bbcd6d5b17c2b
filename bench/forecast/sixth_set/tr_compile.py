"""Trainer with torch_compile on a small ELECTRA discriminator, fused AdamW, bf16, sentences of 383 words."""
import tempfile
import torch
from transformers import ElectraConfig, ElectraForPreTraining, Trainer, TrainingArguments
torch.manual_seed(0)
model = ElectraForPreTraining(ElectraConfig(vocab_size=7001, embedding_size=96, hidden_size=320, num_hidden_layers=2, num_attention_heads=5, intermediate_size=1111,
                                            hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0))
rows = [{"input_ids": torch.randint(1, 7001, (383,)), "labels": torch.randint(0, 2, (383,))} for _ in range(96)]
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=12, per_device_eval_batch_size=12, max_steps=5, torch_compile=True, optim="adamw_torch_fused",
                             bf16=True, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
Trainer(model=model, args=settings, train_dataset=rows).train()
