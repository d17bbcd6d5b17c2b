"""Trains a transformers model with products in float8 (torchao), compiled or not."""
import argparse

import torch
from configs import config
from torchao.float8 import Float8LinearConfig, convert_to_float8_training
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--recipe", default="tensorwise", help="tensorwise, rowwise")
p.add_argument("--compile", action="store_true")
a = p.parse_args()

torch.manual_seed(0)
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.bfloat16)
convert_to_float8_training(model, config=Float8LinearConfig.from_recipe_name(a.recipe), module_filter_fn=lambda m, name: "lm_head" not in name)
if a.compile:
    for m in model.model.layers:
        m.compile()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(8):
    ids = torch.randint(model.config.vocab_size, (a.batch, a.len), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
