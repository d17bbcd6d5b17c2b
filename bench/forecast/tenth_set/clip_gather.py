"""Contrastive learning: features of both ranks by all_gather with a gradient, a picture and a text tower in one DDP, learned temperature, the loss of all pairs."""
import os
import torch
import torch.distributed as dist
import torch.distributed.nn
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torchvision.models import resnet18


class Clip(nn.Module):
    def __init__(self, d=512):
        super().__init__()
        self.picture = resnet18(num_classes=d)
        self.words, self.places = nn.Embedding(20000, d), nn.Parameter(torch.zeros(77, d))
        self.text = nn.TransformerEncoder(nn.TransformerEncoderLayer(d, 8, 4 * d, 0.0, "gelu", batch_first=True, norm_first=True), 6, enable_nested_tensor=False)
        self.project, self.scale = nn.Linear(d, d, bias=False), nn.Parameter(torch.tensor(2.66))

    def forward(self, x, i):
        text = self.text(self.words(i) + self.places)[torch.arange(len(i), device=i.device), i.argmax(-1)]
        return F.normalize(self.picture(x), dim=-1), F.normalize(self.project(text), dim=-1), self.scale.exp()


dist.init_process_group("nccl")
rank, world = dist.get_rank(), dist.get_world_size()
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = DDP(Clip().cuda(), device_ids=[rank])
opt = torch.optim.AdamW(model.parameters(), 5e-4, weight_decay=0.2)
torch.manual_seed(rank)
for step in range(6):
    x, i = torch.randn(128, 3, 128, 128, device="cuda"), torch.randint(0, 20000, (128, 77), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        a, b, scale = model(x, i)
    a, b = (torch.cat(torch.distributed.nn.all_gather(f.float())) for f in (a, b))
    logits = scale * a @ b.T
    y = torch.arange(len(logits), device="cuda")
    loss = (F.cross_entropy(logits, y) + F.cross_entropy(logits.T, y)) / 2
    opt.zero_grad()
    loss.backward()
    opt.step()
    with torch.no_grad():
        model.module.scale.clamp_(0, 4.6)
    if rank == 0:
        print(step, loss.item())
dist.destroy_process_group()
