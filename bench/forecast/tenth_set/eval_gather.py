"""Training and a distributed evaluation of a ConvNeXt of timm: logits by all_gather_into_tensor, names by all_gather_object, a last batch that is shorter."""
import os
import timm
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


class Pictures(Dataset):
    def __init__(self, n):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        return torch.randn(3, 160, 160), i % 200, f"picture {i}"


dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = DDP(timm.create_model("convnext_tiny", num_classes=200).cuda(), device_ids=[rank])
opt = torch.optim.AdamW(model.parameters(), 1e-3)
train, test = Pictures(120), Pictures(170)
for epoch in range(2):
    model.train()
    for x, y, _ in DataLoader(train, 20, sampler=DistributedSampler(train, drop_last=True), drop_last=True):
        with torch.autocast("cuda", torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        opt.zero_grad()
        loss.backward()
        opt.step()
    model.eval()
    logits, labels, names = [], [], []
    with torch.inference_mode():
        for x, y, name in DataLoader(test, 48, sampler=DistributedSampler(test, shuffle=False)):
            logits.append(model.module(x.cuda()))
            labels.append(y.cuda())
            names += name
    logits, labels = torch.cat(logits), torch.cat(labels)
    all_logits, all_labels = logits.new_empty(world * len(logits), 200), labels.new_empty(world * len(labels))
    dist.all_gather_into_tensor(all_logits, logits)
    dist.all_gather_into_tensor(all_labels, labels)
    all_names = [None] * world
    dist.all_gather_object(all_names, names)
    if rank == 0:
        top5 = (all_logits.topk(5).indices == all_labels[:, None]).any(1).float().mean()
        print(epoch, loss.item(), top5.item(), len(set(sum(all_names, []))))
dist.destroy_process_group()
