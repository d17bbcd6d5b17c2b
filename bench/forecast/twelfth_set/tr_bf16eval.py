"""Trainer: a Gemma 4 of text with embeddings a layer, evaluated all in bf16, logits moved to the host every two batches, the cache emptied every two steps."""
import tempfile
import torch
from transformers import Gemma4ForCausalLM, Gemma4TextConfig, Trainer, TrainingArguments

torch.manual_seed(0)
config = Gemma4TextConfig(vocab_size=24000, vocab_size_per_layer_input=24000, hidden_size=768, hidden_size_per_layer_input=64, intermediate_size=3072, num_hidden_layers=10, num_attention_heads=6, num_key_value_heads=2, head_dim=128,
                          global_head_dim=256, sliding_window=256, num_kv_shared_layers=2)
model = Gemma4ForCausalLM(config)
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(3, 24000, (40, 640))]
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=4, per_device_eval_batch_size=4, max_steps=4, bf16=True, bf16_full_eval=True, eval_strategy="steps", eval_steps=2, eval_accumulation_steps=2, save_strategy="no",
                         torch_empty_cache_steps=2, optim="sgd", warmup_steps=1, logging_steps=1, report_to="none", disable_tqdm=True)
trainer = Trainer(model=model, args=args, train_dataset=rows[:24], eval_dataset=rows[24:], compute_metrics=lambda p: {"right": float((p.predictions.argmax(-1) == p.label_ids).mean())})
print(trainer.train().global_step)
