"""Trains a causal language model of transformers with a loop of its own: mixtures of experts, state spaces, several optimizers."""
import argparse

import torch
from configs import config
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="qwen3-moe")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=512)
p.add_argument("--precision", default="autocast", choices=["autocast", "fp32", "bf16"])
p.add_argument("--optimizer", default="adamw", choices=["adamw", "fused", "loop", "sgd", "adafactor", "8bit", "adagrad"])
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--attention", default=None, help="sdpa, eager, flex_attention; the model's own choice otherwise")
p.add_argument("--experts", default="", help="eager, batched_mm, grouped_mm")
p.add_argument("--compile", default="", help="a mode of torch.compile")
p.add_argument("--liger", action="store_true")
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()

torch.manual_seed(0)
c = config(a.model)
if a.liger:
    from liger_kernel.transformers import _apply_liger_kernel
    _apply_liger_kernel(c.model_type)
extra = {"experts_implementation": a.experts} if a.experts else {}
with torch.device("cuda"):
    model = AutoModelForCausalLM.from_config(c, attn_implementation=a.attention, dtype=torch.bfloat16 if a.precision == "bf16" else torch.float32, **extra)
model.train()
if a.checkpoint:
    model.gradient_checkpointing_enable()
weights = model.parameters()
if a.optimizer == "8bit":
    import bitsandbytes
    optimizer = bitsandbytes.optim.AdamW8bit(weights, lr=1e-4)
else:
    optimizer = {"adamw": lambda: torch.optim.AdamW(weights, lr=1e-4), "fused": lambda: torch.optim.AdamW(weights, lr=1e-4, fused=True),
                 "loop": lambda: torch.optim.AdamW(weights, lr=1e-4, foreach=False), "sgd": lambda: torch.optim.SGD(weights, lr=0.1, momentum=0.9),
                 "adafactor": lambda: torch.optim.Adafactor(weights, lr=1e-3), "adagrad": lambda: torch.optim.Adagrad(weights, lr=1e-2)}[a.optimizer]()
run = torch.compile(model, mode=a.compile) if a.compile else model
for step in range(a.steps):
    ids = torch.randint(c.vocab_size, (a.batch, a.len), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=a.precision == "autocast"):
        loss = run(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
