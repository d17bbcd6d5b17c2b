"""Trainer: questions and answers with RoBERTa, checkpointed without re-entry, FP32, accumulated."""
import tempfile
import torch
from transformers import RobertaConfig, RobertaForQuestionAnswering, Trainer, TrainingArguments
torch.manual_seed(0)
rows = [{"input_ids": torch.randint(5, 8000, (384,)), "start_positions": torch.randint(0, 384, ()), "end_positions": torch.randint(0, 384, ())} for _ in range(64)]
model = RobertaForQuestionAnswering(RobertaConfig(vocab_size=8000, hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048,
                                                  max_position_embeddings=400))
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=8, gradient_accumulation_steps=2, max_steps=4, gradient_checkpointing=True,
                             gradient_checkpointing_kwargs={"use_reentrant": False}, report_to=[], save_strategy="no", disable_tqdm=True,
                             logging_strategy="no", optim="adamw_torch")
Trainer(model=model, args=settings, train_dataset=rows).train()
