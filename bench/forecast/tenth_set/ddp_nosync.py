"""DDP with no_sync for accumulated gradients: GPT-2 of transformers, bf16 autocast, a validation loss that is reduced."""
import contextlib
import os
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from transformers import GPT2Config, GPT2LMHeadModel
dist.init_process_group("nccl", device_id=torch.device("cuda", int(os.environ["LOCAL_RANK"])))
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = GPT2LMHeadModel(GPT2Config(vocab_size=16000, n_positions=512, n_embd=768, n_layer=8, n_head=12)).cuda()
ddp = DDP(model, device_ids=[rank])
opt = torch.optim.AdamW(ddp.parameters(), 3e-4, weight_decay=0.1)
every = 4
for step in range(5):
    for micro in range(every):
        ids = torch.randint(0, 16000, (4, 512)).cuda()
        with ddp.no_sync() if micro < every - 1 else contextlib.nullcontext():
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = ddp(input_ids=ids, labels=ids).loss / every
            loss.backward()
    torch.nn.utils.clip_grad_norm_(ddp.parameters(), 1.0)
    opt.step()
    opt.zero_grad()
    if step % 2 == 1:
        ddp.eval()
        with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
            ids = torch.randint(0, 16000, (6, 512), device="cuda")
            val = ddp(input_ids=ids, labels=ids).loss
        dist.all_reduce(val, op=dist.ReduceOp.AVG)
        ddp.train()
        if rank == 0:
            print(step, val.item())
dist.destroy_process_group()
