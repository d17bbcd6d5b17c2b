"""timm: MaxViT in channels-last, fp16 with timm's scaler, mixup, timm's EMA and LAMB, a validation with the EMA."""
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.utils import ModelEmaV3, NativeScaler

torch.manual_seed(0)
model = timm.create_model("maxvit_rmlp_pico_rw_256", num_classes=100, drop_path_rate=0.1).to("cuda", memory_format=torch.channels_last)
ema = ModelEmaV3(model, decay=0.999)
optimizer = create_optimizer_v2(model, opt="lamb", lr=2e-3, weight_decay=0.02)
mixup = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, label_smoothing=0.1, num_classes=100)
scaler, loss_fn = NativeScaler(), SoftTargetCrossEntropy()
for step in range(5):
    model.train()
    pictures = torch.rand(16, 3, 256, 256, device="cuda").contiguous(memory_format=torch.channels_last)
    pictures, targets = mixup(pictures, torch.randint(0, 100, (16,), device="cuda"))
    with torch.autocast("cuda", dtype=torch.float16):
        loss = loss_fn(model(pictures), targets)
    optimizer.zero_grad()
    scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    ema.update(model, step=step)
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    print(loss.item(), ema(torch.rand(32, 3, 256, 256, device="cuda").contiguous(memory_format=torch.channels_last)).argmax(-1)[:3].tolist())
