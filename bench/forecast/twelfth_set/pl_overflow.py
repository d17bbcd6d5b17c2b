"""fp16 with a scaler whose first scales overflow: skipped steps, unscaled and clipped gradients, growth every two steps, capturable AdamW, a ResNeXt by hand."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(a, b // 2, 1, bias=False), nn.BatchNorm2d(b // 2), nn.ReLU(), nn.Conv2d(b // 2, b // 2, 3, stride, 1, groups=32, bias=False), nn.BatchNorm2d(b // 2), nn.ReLU(), nn.Conv2d(b // 2, b, 1, bias=False), nn.BatchNorm2d(b))
        self.side = nn.Identity() if a == b and stride == 1 else nn.Sequential(nn.Conv2d(a, b, 1, stride, bias=False), nn.BatchNorm2d(b))

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


def stage(a, b, n, stride):
    return nn.Sequential(Block(a, b, stride), *[Block(b, b, 1) for _ in range(n - 1)])


model = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1), stage(64, 256, 3, 1), stage(256, 512, 4, 2), stage(512, 1024, 6, 2), stage(1024, 2048, 3, 2),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, capturable=True)
scaler = torch.amp.GradScaler("cuda", init_scale=2.0**40, growth_interval=2, backoff_factor=2.0**-16)
for step in range(8):
    x, y = torch.randn(48, 3, 224, 224, device="cuda"), torch.randint(0, 1000, (48,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(x), y)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(loss.item(), scaler.get_scale())
