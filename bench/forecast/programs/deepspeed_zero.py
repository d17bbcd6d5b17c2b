"""Trains a transformers model with DeepSpeed's ZeRO, under torchrun."""
import argparse

import deepspeed
import torch
from configs import config
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--stage", type=int, default=2)
a = p.parse_args()

torch.manual_seed(0)
model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.bfloat16)
settings = {"train_micro_batch_size_per_gpu": a.batch, "bf16": {"enabled": True}, "zero_optimization": {"stage": a.stage}, "gradient_clipping": 1.0,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-4, "torch_adam": True}}, "zero_allow_untested_optimizer": True}
engine, *_ = deepspeed.initialize(model=model, config=settings)
for step in range(8):
    ids = torch.randint(model.config.vocab_size, (a.batch, a.len), device=engine.device)
    loss = engine(input_ids=ids, labels=ids).loss
    engine.backward(loss)
    engine.step()
    print(step, loss.item(), flush=True)
