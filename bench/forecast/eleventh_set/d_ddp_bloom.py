"""DDP: BLOOM in fp16 with GradScaler, buckets as views, two batches a step without a sum for the first, checkpointed, fused Adam."""
import contextlib
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import BloomConfig, BloomForCausalLM

dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
model = BloomForCausalLM(BloomConfig(vocab_size=24000, hidden_size=768, n_layer=8, n_head=12, use_cache=False)).to(rank)
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
model = DDP(model, device_ids=[rank], gradient_as_bucket_view=True)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
scaler = torch.amp.GradScaler("cuda")
for step in range(5):
    for part in range(2):
        ids = torch.randint(0, 24000, (4, 512), device=rank)
        with model.no_sync() if part == 0 else contextlib.nullcontext():
            with torch.autocast("cuda", dtype=torch.float16):
                loss = model(input_ids=ids, labels=ids).loss / 2
            scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
