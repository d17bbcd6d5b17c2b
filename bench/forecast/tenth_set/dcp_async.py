"""torch.distributed.checkpoint: FSDP2 with async_save in the loop, save at the end, load into a new model that goes on."""
import os
import tempfile
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import fully_shard


def made():
    torch.manual_seed(0)
    with torch.device("cuda"):
        layer = nn.TransformerEncoderLayer(1024, 16, 4096, dropout=0.1, batch_first=True)
        model = nn.Sequential(nn.Embedding(16000, 1024), nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), nn.Linear(1024, 16000))
    for block in model[1].layers:
        fully_shard(block)
    fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), 1e-4)


def train(model, opt, steps):
    for _ in range(steps):
        i = torch.randint(0, 16000, (8, 256), device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            loss = nn.functional.cross_entropy(model(i).flatten(0, 1), i.flatten())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


dist.init_process_group("cpu:gloo,cuda:nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
folder = [tempfile.mkdtemp() if rank == 0 else None]
dist.broadcast_object_list(folder)
model, opt = made()
waiting = None
for part in range(2):
    train(model, opt, 2)
    if waiting is not None:
        waiting.result()
    weights, state = get_state_dict(model, opt)
    waiting = dcp.async_save({"model": weights, "opt": state}, checkpoint_id=f"{folder[0]}/{part}")
print(rank, train(model, opt, 2))
waiting.result()
weights, state = get_state_dict(model, opt)
dcp.save({"model": weights, "opt": state}, checkpoint_id=f"{folder[0]}/end")
del model, opt, weights, state
model, opt = made()
weights, state = get_state_dict(model, opt)
dcp.load({"model": weights, "opt": state}, checkpoint_id=f"{folder[0]}/end")
set_state_dict(model, opt, model_state_dict=weights, optim_state_dict=state)
print(rank, train(model, opt, 2))
dist.destroy_process_group()
