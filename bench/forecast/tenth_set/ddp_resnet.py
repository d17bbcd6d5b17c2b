"""DDP as in the ImageNet example: ResNet-50, SyncBatchNorm, channels-last, bf16, gradient_as_bucket_view, DistributedSampler with a last short batch, evaluation."""
import os
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler
from torchvision.models import resnet50
dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(0)
model = torch.nn.SyncBatchNorm.convert_sync_batchnorm(resnet50(num_classes=100)).cuda().to(memory_format=torch.channels_last)
model = DDP(model, device_ids=[rank], gradient_as_bucket_view=True)
opt = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
data = TensorDataset(torch.randn(150, 3, 160, 160), torch.randint(0, 100, (150,)))
sampler = DistributedSampler(data)
loader = DataLoader(data, batch_size=32, sampler=sampler, pin_memory=True)
for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    for x, y in loader:
        x, y = x.cuda(non_blocking=True).to(memory_format=torch.channels_last), y.cuda(non_blocking=True)
        with torch.autocast("cuda", torch.bfloat16):
            loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
    model.eval()
    correct = torch.zeros((), device="cuda")
    with torch.no_grad():
        for x, y in loader:
            correct += (model(x.cuda()).argmax(1) == y.cuda()).sum()
    dist.all_reduce(correct)
    if rank == 0:
        print(epoch, loss.item(), correct.item() / len(data))
dist.destroy_process_group()
