"""DDP: DeiT with a distilling token, blocks compiled before it is wrapped, bf16 autocast, a ResNet-34 of timm as the teacher, SGD."""
import os
import timm
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl", device_id=torch.device("cuda", rank))
torch.manual_seed(rank)
model = timm.create_model("deit_small_distilled_patch16_224", num_classes=100).cuda()
model.set_distilled_training(True)
for block in model.blocks:
    block.compile()
teacher = timm.create_model("resnet34", num_classes=100).cuda().eval().requires_grad_(False)
model = DDP(model, device_ids=[rank], broadcast_buffers=False)
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
for step in range(5):
    pictures, labels = torch.rand(32, 3, 224, 224, device="cuda"), torch.randint(0, 100, (32,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.no_grad():
            hard = teacher(pictures).argmax(1)
        out, distilled = model(pictures)
        loss = torch.nn.functional.cross_entropy(out, labels, label_smoothing=0.1) / 2 + torch.nn.functional.cross_entropy(distilled, hard) / 2
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(rank, loss.item())
dist.destroy_process_group()
