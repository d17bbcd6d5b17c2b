"""Finds the largest batch that fits by running out of memory: the batch is halved until a step succeeds."""
import argparse
import gc

import torch
from configs import config
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="gpt2")
p.add_argument("--batch", type=int, default=64)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--gib", type=float, default=16)
a = p.parse_args()

torch.manual_seed(0)
torch.cuda.set_per_process_memory_fraction(a.gib * 2**30 / torch.cuda.get_device_properties(0).total_memory)
model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.float32).to("cuda").train()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)


def step(batch):
    ids = torch.randint(model.config.vocab_size, (batch, a.len)).to("cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    return loss.item()


batch, done = a.batch, 0
while done < 8:
    optimizer.zero_grad()
    try:
        print(done, batch, step(batch), flush=True)
        done += 1
    except torch.cuda.OutOfMemoryError:
        batch //= 2
        print("out of memory: the batch is now", batch, flush=True)
        gc.collect()
        torch.cuda.empty_cache()
