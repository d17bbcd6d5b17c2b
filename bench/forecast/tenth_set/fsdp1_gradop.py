"""FSDP1 with SHARD_GRAD_OP and use_orig_params: two groups of AdamW, no_sync for accumulated gradients, clip_grad_norm_ of FSDP, size_based_auto_wrap_policy."""
import contextlib
import functools
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP, ShardingStrategy
from torch.distributed.fsdp.wrap import size_based_auto_wrap_policy
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = nn.Transformer(768, 12, 4, 4, 3072, dropout=0.1, batch_first=True, norm_first=True).cuda()
model = FSDP(model, auto_wrap_policy=functools.partial(size_based_auto_wrap_policy, min_num_params=4_000_000), sharding_strategy=ShardingStrategy.SHARD_GRAD_OP, use_orig_params=True, device_id=rank)
decay = [p for n, p in model.named_parameters() if n.endswith("weight") and "norm" not in n]
rest = [p for n, p in model.named_parameters() if not (n.endswith("weight") and "norm" not in n)]
opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": rest, "weight_decay": 0.0}], 1e-4)
for step in range(5):
    for micro in range(2):
        src, tgt = torch.randn(12, 192, 768, device="cuda"), torch.randn(12, 160, 768, device="cuda")
        with model.no_sync() if micro == 0 else contextlib.nullcontext(), torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.mse_loss(model(src, tgt, tgt_mask=nn.Transformer.generate_square_subsequent_mask(160, device="cuda")), tgt)
            loss.backward()
    model.clip_grad_norm_(1.0)
    opt.step()
    opt.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
