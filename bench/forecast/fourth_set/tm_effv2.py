"""timm: EfficientNetV2 by autocast in channels-last, averaged weights, evaluation of the average."""
import timm
import timm.optim
import timm.utils
import torch
from timm.utils import ModelEmaV3
torch.manual_seed(0)
model = timm.create_model("efficientnetv2_rw_t", num_classes=100).cuda().to(memory_format=torch.channels_last)
average = ModelEmaV3(model, decay=0.999)
optimizer = timm.optim.create_optimizer_v2(model, opt="rmsproptf", lr=1e-3)
scaler = torch.amp.GradScaler()
for step in range(5):
    images = torch.randn(32, 3, 224, 224, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), torch.randint(0, 100, (32,), device="cuda"))
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    average.update(model, step=step)
average.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    average(torch.randn(64, 3, 288, 288, device="cuda").contiguous(memory_format=torch.channels_last))
