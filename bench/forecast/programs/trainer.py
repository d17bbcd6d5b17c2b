"""Trains a causal language model with transformers' Trainer on random tokens."""
import argparse
import tempfile

import torch
from configs import config
from transformers import AutoModelForCausalLM, Trainer, TrainingArguments

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--layers", type=int, default=0)
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--precision", default="autocast", choices=["autocast", "fp32", "bf16"], help="bf16: the weights too")
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--optim", default="adamw_torch_fused")
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--attention", default="sdpa")
p.add_argument("--compile", action="store_true")
p.add_argument("--liger", action="store_true")
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()

torch.manual_seed(0)
c = config(a.model, **({"num_hidden_layers": a.layers} if a.layers else {}))
model = AutoModelForCausalLM.from_config(c, attn_implementation=a.attention, dtype=torch.bfloat16 if a.precision == "bf16" else torch.float32)


class Tokens(torch.utils.data.Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, i):
        ids = torch.randint(c.vocab_size, (a.len,), generator=torch.Generator().manual_seed(i))
        return {"input_ids": ids, "labels": ids}


with tempfile.TemporaryDirectory() as folder:
    settings = TrainingArguments(
        output_dir=folder, per_device_train_batch_size=a.batch, gradient_accumulation_steps=a.accumulate, max_steps=a.steps, learning_rate=1e-4,
        bf16=a.precision == "autocast", gradient_checkpointing=a.checkpoint, optim=a.optim, torch_compile=a.compile, use_liger_kernel=a.liger,
        logging_steps=2, save_strategy="no", report_to=[], disable_tqdm=True)
    Trainer(model=model, args=settings, train_dataset=Tokens()).train()
