"""Trainer with torchao's AdamW in 8 bits, weights in bf16, GPT-NeoX with parallel residuals, checkpointed without re-entry."""
import tempfile
import torch
from transformers import GPTNeoXConfig, GPTNeoXForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
model = GPTNeoXForCausalLM(GPTNeoXConfig(vocab_size=20011, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2000, max_position_embeddings=600)).to(torch.bfloat16)
rows = [{"input_ids": (t := torch.randint(1, 20011, (509,))), "labels": t} for _ in range(40)]
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=5, optim="adamw_torch_8bit", bf16=True, gradient_checkpointing=True,
                             gradient_checkpointing_kwargs={"use_reentrant": False}, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
Trainer(model=model, args=settings, train_dataset=rows).train()
