"""timm: features of a MobileNetV4 under a small head that segments; focal and dice losses; FP32."""
import timm
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
class Segment(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = timm.create_model("mobilenetv4_conv_small", features_only=True)
        self.sides = nn.ModuleList(nn.Conv2d(c, 64, 1) for c in self.body.feature_info.channels())
        self.head = nn.Sequential(nn.Conv2d(64, 64, 3, padding=1), nn.GroupNorm(8, 64), nn.ReLU(), nn.Conv2d(64, 21, 1))
    def forward(self, x):
        levels = [side(f) for side, f in zip(self.sides, self.body(x))]
        y = levels[-1]
        for level in reversed(levels[:-1]):
            y = level + F.interpolate(y, level.shape[-2:], mode="nearest")
        return F.interpolate(self.head(y), x.shape[-2:], mode="bilinear", align_corners=False)
model = Segment().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(5):
    images, labels = torch.randn(8, 3, 256, 256, device="cuda"), torch.randint(0, 21, (8, 256, 256), device="cuda")
    logits = model(images)
    entropy = F.cross_entropy(logits, labels, reduction="none")
    focal = ((1 - torch.exp(-entropy)) ** 2 * entropy).mean()
    chance, hot = logits.softmax(1), F.one_hot(labels, 21).permute(0, 3, 1, 2).float()
    dice = 1 - (2 * (chance * hot).sum((2, 3)) / (chance + hot).sum((2, 3))).mean()
    (focal + dice).backward()
    optimizer.step()
    optimizer.zero_grad()
