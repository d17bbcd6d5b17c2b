"""Supervised fine-tuning with TRL's SFTTrainer on texts of several lengths."""
import argparse
import tempfile

import torch
import words
from configs import config
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import SFTConfig, SFTTrainer

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--batch", type=int, default=8)
p.add_argument("--len", type=int, default=512)
p.add_argument("--packing", action="store_true")
p.add_argument("--lora", action="store_true")
p.add_argument("--no-checkpoint", action="store_true")
a = p.parse_args()

torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config(a.model, vocab_size=8000), dtype=torch.bfloat16)
with tempfile.TemporaryDirectory() as folder:
    settings = SFTConfig(
        output_dir=folder, per_device_train_batch_size=a.batch, max_length=a.len, max_steps=8, packing=a.packing, bf16=True, logging_steps=2,
        gradient_checkpointing=not a.no_checkpoint, save_strategy="no", report_to=[], disable_tqdm=True, dataset_num_proc=None)
    adapters = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM") if a.lora else None
    SFTTrainer(model=model, args=settings, train_dataset=words.dataset({"text": (a.len // 4, a.len * 2)}), processing_class=words.tokenizer(),
               peft_config=adapters).train()
