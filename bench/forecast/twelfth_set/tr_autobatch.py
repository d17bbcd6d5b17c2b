"""Trainer: Cohere 2 finds the batch that fits in 0.08 of the card by itself (auto_find_batch_size), bf16 weights, checkpointed without use_reentrant."""
import tempfile
import torch
from transformers import Cohere2Config, Cohere2ForCausalLM, Trainer, TrainingArguments

torch.cuda.set_per_process_memory_fraction(0.08)
torch.manual_seed(0)
config = Cohere2Config(vocab_size=64000, hidden_size=1024, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, sliding_window=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
model = Cohere2ForCausalLM(config).to(torch.bfloat16)
rows = [{"input_ids": ids, "labels": ids} for ids in torch.randint(3, 64000, (96, 512))]
args = TrainingArguments(output_dir=tempfile.mkdtemp(), per_device_train_batch_size=96, auto_find_batch_size=True, max_steps=3, gradient_checkpointing=True, gradient_checkpointing_kwargs={"use_reentrant": False}, optim="adamw_torch",
                         lr_scheduler_type="constant", logging_steps=1, save_strategy="no", report_to="none", disable_tqdm=True)
trainer = Trainer(model=model, args=args, train_dataset=rows)
trainer.train()
print(trainer._train_batch_size)
