"""Trainer: paged Lion in 8 bits and noise on the embeddings (NEFTune), caches emptied every second step."""
import tempfile
import torch
from transformers import Qwen3Config, Qwen3ForCausalLM, Trainer, TrainingArguments
torch.manual_seed(0)
rows = [(lambda ids: {"input_ids": ids, "labels": ids})(torch.randint(0, 12000, (384,))) for _ in range(48)]
model = Qwen3ForCausalLM(Qwen3Config(vocab_size=12000, hidden_size=512, intermediate_size=1536, num_hidden_layers=8, num_attention_heads=8,
                                     num_key_value_heads=4, head_dim=64))
settings = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=6, max_steps=6, optim="paged_lion_8bit", neftune_noise_alpha=5.0, bf16=True,
                             torch_empty_cache_steps=2, report_to=[], save_strategy="no", disable_tqdm=True, logging_strategy="no")
Trainer(model=model, args=settings, train_dataset=rows).train()
