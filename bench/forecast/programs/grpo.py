"""Group relative policy optimisation with TRL's GRPOTrainer: the model writes, a function rewards."""
import argparse
import tempfile

import torch
import words
from configs import config
from transformers import AutoModelForCausalLM
from trl import GRPOConfig, GRPOTrainer

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama-tiny")
p.add_argument("--batch", type=int, default=8)
p.add_argument("--group", type=int, default=4)
p.add_argument("--prompt", type=int, default=64)
p.add_argument("--tokens", type=int, default=96)
p.add_argument("--beta", type=float, default=0.0)
a = p.parse_args()

torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config(a.model, vocab_size=8000), dtype=torch.float32)


def shorter(completions, **_):
    return [-float(len(c)) for c in completions]


with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    model.config._name_or_path = folder
    model.name_or_path = folder
    settings = GRPOConfig(
        output_dir=folder, per_device_train_batch_size=a.batch, num_generations=a.group, max_completion_length=a.tokens, max_steps=8, bf16=True,
        beta=a.beta, logging_steps=2, save_strategy="no", report_to=[], disable_tqdm=True)
    GRPOTrainer(model=model, reward_funcs=shorter, args=settings, train_dataset=words.dataset({"prompt": (a.prompt // 2, a.prompt)}, rows=64),
                processing_class=words.tokenizer()).train()
