"""Trains a transformers model over several cards with DDP or FSDP2, under torchrun."""
import argparse
import os

import torch
import torch.distributed as dist
from configs import config
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("--model", default="llama")
p.add_argument("--batch", type=int, default=2)
p.add_argument("--len", type=int, default=1024)
p.add_argument("--shard", default="fsdp2", choices=["ddp", "fsdp2"])
p.add_argument("--keep-gathered", action="store_true")
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--compile", action="store_true")
a = p.parse_args()

local = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(local)
dist.init_process_group("nccl", device_id=torch.device("cuda", local))
torch.manual_seed(0)
with torch.device("meta" if a.shard == "fsdp2" else "cuda"):
    model = AutoModelForCausalLM.from_config(config(a.model), dtype=torch.float32)
if a.checkpoint:
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
blocks = [m for m in model.modules() if type(m).__name__.endswith("DecoderLayer")]
if a.compile:
    for m in blocks:
        m.compile()
if a.shard == "ddp":
    run = torch.nn.parallel.DistributedDataParallel(model, device_ids=[local], gradient_as_bucket_view=True)
else:
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for m in blocks:
        fully_shard(m, mp_policy=policy, reshard_after_forward=not a.keep_gathered)
    fully_shard(model, mp_policy=policy)
    model.to_empty(device="cuda")
    for name, b in model.named_buffers():
        b.zero_()
    with torch.no_grad():
        for w in model.parameters():
            torch.nn.init.normal_(w, std=0.02)
    run = model
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(8):
    ids = torch.randint(model.config.vocab_size, (a.batch, a.len), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=a.shard == "ddp"):
        loss = run(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    if dist.get_rank() == 0:
        print(step, loss.item(), flush=True)
dist.destroy_process_group()
