"""Direct preference optimisation with TRL's DPOTrainer."""
import argparse
import tempfile

import torch
import words
from configs import config
from peft import LoraConfig
from transformers import AutoModelForCausalLM
from trl import DPOConfig, DPOTrainer

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama-tiny")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=512)
p.add_argument("--lora", action="store_true")
p.add_argument("--precompute", action="store_true", help="the reference model's probabilities before training")
a = p.parse_args()

torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config(a.model, vocab_size=8000), dtype=torch.float32)
with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    model.config._name_or_path = folder
    model.name_or_path = folder
    settings = DPOConfig(
        output_dir=folder, per_device_train_batch_size=a.batch, max_length=a.len, max_steps=8, bf16=True, logging_steps=2, save_strategy="no",
        precompute_ref_log_probs=a.precompute, report_to=[], disable_tqdm=True)
    data = words.dataset({"prompt": (16, a.len // 4), "chosen": (16, a.len), "rejected": (16, a.len)}, rows=96)
    adapters = LoraConfig(r=16, target_modules="all-linear", task_type="CAUSAL_LM") if a.lora else None
    DPOTrainer(model=model, ref_model=None, args=settings, train_dataset=data, processing_class=words.tokenizer(), peft_config=adapters).train()
