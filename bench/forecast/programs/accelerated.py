"""Trains a causal language model with accelerate: its loader, accumulation, clipping and mixed precision."""
import argparse
import itertools

import torch
from accelerate import Accelerator
from configs import config
from transformers import AutoModelForCausalLM, get_cosine_schedule_with_warmup

p = argparse.ArgumentParser()
p.add_argument("--model", default="gpt2")
p.add_argument("--batch", type=int, default=4)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--precision", default="bf16")
p.add_argument("--accumulate", type=int, default=1)
p.add_argument("--workers", type=int, default=0)
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision=a.precision, gradient_accumulation_steps=a.accumulate)
model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.float32)
data = torch.utils.data.TensorDataset(torch.randint(model.config.vocab_size, (256, a.len)))
loader = torch.utils.data.DataLoader(data, batch_size=a.batch, shuffle=True, num_workers=a.workers, pin_memory=True)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
schedule = accelerator.prepare(get_cosine_schedule_with_warmup(optimizer, 2, a.steps))
model.train()
steps = 0
for ids, in itertools.chain.from_iterable(itertools.repeat(loader)):
    with accelerator.accumulate(model):
        loss = model(input_ids=ids, labels=ids).loss
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
            steps += 1
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    print(steps, loss.item(), flush=True)
    if steps == a.steps:
        break
