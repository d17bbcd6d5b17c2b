"""Trainer: a Qwen 3.5 of text with linear attention, checkpointed with use_reentrant, fused AdamW, NEFTune, smoothed labels, bf16, two batches a step."""
import tempfile
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Trainer, TrainingArguments

torch.manual_seed(0)
config = Qwen3_5TextConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=2, head_dim=128, linear_num_key_heads=8, linear_num_value_heads=16,
                           linear_key_head_dim=64, linear_value_head_dim=64)
model = Qwen3_5ForCausalLM(config)
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(0, 32000, (32, 768))]
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, gradient_accumulation_steps=2, max_steps=3, bf16=True, optim="adamw_torch_fused", gradient_checkpointing=True,
                         gradient_checkpointing_kwargs={"use_reentrant": True}, neftune_noise_alpha=5.0, label_smoothing_factor=0.1, max_grad_norm=0.5, logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True)
Trainer(model=model, args=args, train_dataset=rows).train()
