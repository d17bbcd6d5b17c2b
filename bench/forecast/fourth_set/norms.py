"""Norms of all kinds in one U: batch, group, instance, layer over channels, local response, synchronised on one rank."""
import tempfile
import torch
import torch.distributed as dist
import torch.nn as nn
torch.manual_seed(0)
dist.init_process_group("nccl", init_method=f"file://{tempfile.mkdtemp()}/meet", rank=0, world_size=1)
def block(a, b, norm):
    return nn.Sequential(nn.Conv2d(a, b, 3, padding=1, bias=False), norm, nn.ELU(inplace=True))
net = nn.Sequential(block(3, 48, nn.BatchNorm2d(48)), nn.MaxPool2d(2), block(48, 96, nn.GroupNorm(8, 96)), block(96, 96, nn.InstanceNorm2d(96, affine=True)),
                    nn.MaxPool2d(2, return_indices=False), block(96, 192, nn.BatchNorm2d(192)), nn.LocalResponseNorm(5), nn.Upsample(scale_factor=2),
                    block(192, 96, nn.GroupNorm(1, 96)), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Conv2d(96, 5, 1)).cuda()
model = nn.parallel.DistributedDataParallel(nn.SyncBatchNorm.convert_sync_batchnorm(net), device_ids=[0])
optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, centered=True, momentum=0.9)
for step in range(5):
    loss = nn.functional.cross_entropy(model(torch.randn(12, 3, 128, 128, device="cuda")), torch.randint(0, 5, (12, 128, 128), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
dist.destroy_process_group()
