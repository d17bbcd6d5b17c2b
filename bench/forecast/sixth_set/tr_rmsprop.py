"""Trainer: Gemma 3 with RMSprop, reentrant checkpointing, noise on the embeddings, fp16 with a scaler, gradients accumulated over three batches."""
import tempfile
import torch
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, Trainer, TrainingArguments
torch.manual_seed(0)
model = Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=30011, hidden_size=320, intermediate_size=1300, num_hidden_layers=7, num_attention_heads=5, num_key_value_heads=1,
                                           head_dim=64, sliding_window=100, attn_implementation="sdpa"))
rows = [{"input_ids": (t := torch.randint(1, 30011, (411,))), "labels": t} for _ in range(60)]
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=3, gradient_accumulation_steps=3, max_steps=5, optim="rmsprop", fp16=True,
                             gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": True}, neftune_noise_alpha=5, max_grad_norm=0.7,
                             report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no", lr_scheduler_type="constant_with_warmup", warmup_steps=2)
Trainer(model=model, args=settings, train_dataset=rows).train()
