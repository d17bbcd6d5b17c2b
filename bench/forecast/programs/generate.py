"""Generates text with transformers: greedy or sampled, with a dynamic or a static cache."""
import argparse

import torch
from configs import config
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--batch", type=int, default=8)
p.add_argument("--prompt", type=int, default=256)
p.add_argument("--tokens", type=int, default=64)
p.add_argument("--cache", default="dynamic", choices=["dynamic", "static"])
p.add_argument("--sample", action="store_true")
a = p.parse_args()

torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.bfloat16).to("cuda").eval()
for turn in range(2):
    ids = torch.randint(3, 8000, (a.batch, a.prompt)).to("cuda")
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), max_new_tokens=a.tokens, min_new_tokens=a.tokens, do_sample=a.sample,
                         cache_implementation=a.cache if a.cache == "static" else None, pad_token_id=0)
    print(turn, tuple(out.shape), flush=True)
