"""Trainer: SmolLM 3 compiled, bf16, packed sequences of 2048, layers with and without rotary positions."""
import tempfile
import torch
from transformers import SmolLM3Config, SmolLM3ForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
config = SmolLM3Config(vocab_size=32768, hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, num_key_value_heads=4, pad_token_id=0, bos_token_id=1, eos_token_id=2, use_cache=False)
model = SmolLM3ForCausalLM(config)
ids = torch.randint(0, 32768, (40, 2048))
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, max_steps=8, bf16=True, tf32=True, torch_compile=True, optim="adamw_torch_fused", adam_beta2=0.95, report_to="none", save_strategy="no", logging_steps=4, disable_tqdm=True)
Trainer(model=model, args=args, train_dataset=[{"input_ids": x, "labels": x} for x in ids]).train()
