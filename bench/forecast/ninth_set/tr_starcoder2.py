"""Trainer: StarCoder 2 from scratch in bf16, checkpointed, four accumulated batches, fused AdamW, an evaluation at the end and a checkpoint."""
import tempfile
import torch
from transformers import Starcoder2Config, Starcoder2ForCausalLM, Trainer, TrainingArguments, default_data_collator, set_seed

set_seed(0)
config = Starcoder2Config(vocab_size=24576, hidden_size=1536, intermediate_size=6144, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=2, sliding_window=512, use_cache=False)
with torch.device("cuda"):
    model = Starcoder2ForCausalLM(config)
tokens = torch.randint(0, config.vocab_size, (96, 1024))
rows = [{"input_ids": t, "labels": t} for t in tokens]
with tempfile.TemporaryDirectory() as folder:
    args = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, gradient_accumulation_steps=4, max_steps=5, bf16=True, gradient_checkpointing=True,
                             optim="adamw_torch_fused", lr_scheduler_type="cosine", warmup_steps=2, learning_rate=2e-4, weight_decay=0.1, logging_steps=1, report_to="none",
                             save_strategy="steps", save_steps=5, save_only_model=True, per_device_eval_batch_size=4, prediction_loss_only=True)
    trainer = Trainer(model=model, args=args, train_dataset=rows[:80], eval_dataset=rows[80:], data_collator=default_data_collator)
    trainer.train()
    print(trainer.evaluate())
