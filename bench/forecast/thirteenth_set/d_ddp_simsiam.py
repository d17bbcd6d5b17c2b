"""DDP on two cards: SimSiam on EfficientNet-V2 of torchvision, batch norms made one over ranks, buckets as views of gradients, batches of other ranks gathered for a probe."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
torch.manual_seed(0)


class SimSiam(nn.Module):
    def __init__(self, dim=1024):
        super().__init__()
        net = torchvision.models.efficientnet_v2_s(weights=None)
        net.classifier = nn.Identity()
        self.net = net
        self.project = nn.Sequential(nn.Linear(1280, dim, bias=False), nn.BatchNorm1d(dim), nn.ReLU(), nn.Linear(dim, dim, bias=False), nn.BatchNorm1d(dim, affine=False))
        self.predict = nn.Sequential(nn.Linear(dim, 256, bias=False), nn.BatchNorm1d(256), nn.ReLU(), nn.Linear(256, dim))

    def forward(self, a, b):
        za, zb = self.project(self.net(a)), self.project(self.net(b))
        pa, pb = self.predict(za), self.predict(zb)
        return -(F.cosine_similarity(pa, zb.detach()).mean() + F.cosine_similarity(pb, za.detach()).mean()) / 2, za.detach()


model = DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(SimSiam()).cuda(), gradient_as_bucket_view=True, bucket_cap_mb=10, broadcast_buffers=False)
probe = DistributedDataParallel(nn.Linear(1024, 10).cuda())
optimizer = torch.optim.SGD([*model.parameters(), *probe.parameters()], lr=0.05, momentum=0.9, weight_decay=1e-4)
torch.manual_seed(rank)
for step in range(4):
    x = torch.randn(24, 3, 128, 128, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss, z = model(x + 0.1 * torch.randn_like(x), x.flip(3))
    every = [torch.empty_like(z) for _ in range(2)]
    dist.all_gather(every, z)
    told = F.cross_entropy(probe(torch.cat(every).float()), torch.randint(0, 10, (48,), device="cuda"))
    (loss + told).backward()
    optimizer.step()
    optimizer.zero_grad()
print(rank, loss.item(), told.item())
dist.destroy_process_group()
