"""FSDP2 with a sharded EMA copy and full checkpoints in the loop: a ViT of timm, gathered by get_state_dict on rank 0, loaded again by set_model_state_dict."""
import copy
import os
import tempfile
import timm
import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_model_state_dict
from torch.distributed.fsdp import fully_shard
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = timm.create_model("vit_base_patch16_224", num_classes=500, drop_path_rate=0.1).cuda()
ema = copy.deepcopy(model).eval().requires_grad_(False)
for m in (model, ema):
    for b in m.blocks:
        fully_shard(b)
    fully_shard(m)
opt = torch.optim.AdamW(model.parameters(), 1e-3, weight_decay=0.05, foreach=True)
path = os.path.join(tempfile.mkdtemp(), "last.pt")
options = StateDictOptions(full_state_dict=True, cpu_offload=True)
for step in range(6):
    x, y = torch.randn(24, 3, 224, 224, device="cuda"), torch.randint(0, 500, (24,), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(x), y)
    loss.backward()
    opt.step()
    opt.zero_grad()
    with torch.no_grad():
        torch._foreach_lerp_([p.to_local() for p in ema.parameters()], [p.to_local() for p in model.parameters()], 0.01)
    if step % 3 == 2:
        weights, optimizer = get_state_dict(model, opt, options=options)
        if rank == 0:
            torch.save({"model": weights, "optimizer": optimizer, "step": step}, path)
        with torch.no_grad():
            print(rank, step, ema(x).argmax(1).eq(y).float().mean().item())
        ema.reshard()  # a root stays gathered after a forward pass without a backward
        del weights, optimizer
full = torch.load(path, weights_only=False)["model"] if rank == 0 else {}
set_model_state_dict(model, full, options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
dist.destroy_process_group()
