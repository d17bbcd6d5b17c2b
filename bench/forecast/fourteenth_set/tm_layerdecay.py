"""timm: a DeiT 3 fine-tuned with rates that fall by layer, mixup and cutmix by its Mixup, LayerScale, stochastic depth, bf16, ModelEmaV3 on the CPU, checkpointed."""
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
from timm.scheduler import CosineLRScheduler
from timm.utils import ModelEmaV3, accuracy

torch.manual_seed(0)
model = timm.create_model("deit3_small_patch16_224", num_classes=200, drop_path_rate=0.1).cuda()
model.set_grad_checkpointing(True)
ema = ModelEmaV3(model, decay=0.9998, device="cpu")
optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75)
schedule = CosineLRScheduler(optimizer, t_initial=10, warmup_t=2, warmup_lr_init=1e-6)
mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=200, label_smoothing=0.1, switch_prob=0.5)
criterion = SoftTargetCrossEntropy()
model.train()
for step in range(5):
    x, y = mix(torch.randn(64, 3, 224, 224, device="cuda"), torch.randint(0, 200, (64,), device="cuda"))
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = criterion(model(x), y)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    schedule.step_update(step)
    ema.update(model, step=step)
model.eval()
with torch.inference_mode(), torch.autocast("cuda", dtype=torch.bfloat16):
    print(loss.item(), [a.item() for a in accuracy(model(torch.randn(128, 3, 224, 224, device="cuda")), torch.randint(0, 200, (128,), device="cuda"), topk=(1, 5))])
