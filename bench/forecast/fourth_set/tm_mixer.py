"""timm: an MLP-Mixer in FP32 with LAMB and mixed images."""
import timm
import torch
from timm.data import Mixup
from timm.loss import SoftTargetCrossEntropy
from timm.optim import create_optimizer_v2
torch.manual_seed(0)
model = timm.create_model("mixer_s16_224", num_classes=100, drop_path_rate=0.1).cuda()
optimizer = create_optimizer_v2(model, opt="lamb", lr=1e-3, weight_decay=0.05)
mix = Mixup(mixup_alpha=0.8, cutmix_alpha=1.0, num_classes=100)
for step in range(5):
    images, labels = mix(torch.randn(32, 3, 224, 224, device="cuda"), torch.randint(0, 100, (32,), device="cuda"))
    loss = SoftTargetCrossEntropy()(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
