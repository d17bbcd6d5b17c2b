"""timm: Hiera by mixed and cut pictures with a binary loss, rates by depth, NAdamW, an EMA on the card, repeated augmentation left out, bf16; EMA's evaluation."""
import timm
import torch
from timm.data import Mixup
from timm.loss import BinaryCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, NativeScaler

torch.manual_seed(0)
model = timm.create_model("hiera_tiny_224", num_classes=400, drop_path_rate=0.1).cuda()
optimizer = create_optimizer_v2(model, opt="nadamw", lr=1e-3, weight_decay=0.05, layer_decay=0.7)
schedule, average, scaler = CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-6), ModelEmaV3(model, decay=0.999), NativeScaler()
mix, loss_of = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, prob=1.0, switch_prob=0.5, num_classes=400), BinaryCrossEntropy(smoothing=0.1)
for step in range(5):
    x, y = mix(torch.randn(48, 3, 224, 224, device="cuda"), torch.randint(0, 400, (48,), device="cuda"))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_of(model(x), y)
    optimizer.zero_grad()
    scaler(loss, optimizer, clip_grad=1.0, parameters=model.parameters())
    average.update(model, step=step)
    schedule.step(step)
average.module.eval()
with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
    print(loss.item(), average.module(torch.randn(160, 3, 224, 224, device="cuda")).float().softmax(-1).amax(-1).mean().item())
