"""Trainer: Qwen 3 with experts, bf16, checkpointed, fused AdamW, evaluated and saved on the way, resumed from its checkpoint by a second Trainer."""
import tempfile
import torch
from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
folder = tempfile.mkdtemp()
make = lambda: Qwen3MoeForCausalLM(Qwen3MoeConfig(vocab_size=16000, hidden_size=640, intermediate_size=1792, moe_intermediate_size=384, num_hidden_layers=6, num_attention_heads=10, num_key_value_heads=2, head_dim=64, num_experts=16, num_experts_per_tok=4, decoder_sparse_step=2, use_cache=False))
rows = [{"input_ids": (ids := torch.randint(0, 16000, (512,))), "labels": ids.clone()} for _ in range(48)]


def run(steps, resume):
    args = TrainingArguments(output_dir=folder, per_device_train_batch_size=4, per_device_eval_batch_size=8, gradient_accumulation_steps=2, max_steps=steps, bf16=True, gradient_checkpointing=True, optim="adamw_torch_fused", learning_rate=1e-4,
                             eval_strategy="steps", eval_steps=2, save_strategy="steps", save_steps=2, save_total_limit=1, logging_steps=1, report_to="none", disable_tqdm=True)
    Trainer(model=make(), args=args, train_dataset=rows[:40], eval_dataset=rows[40:]).train(resume_from_checkpoint=resume)


run(2, None)
run(4, True)
