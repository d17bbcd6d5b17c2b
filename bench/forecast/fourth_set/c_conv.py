"""torch.compile of a whole convolutional network in channels-last, fp16 with a scaler."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.depth, self.norm, self.up, self.down = nn.Conv2d(c, c, 7, padding=3, groups=c), nn.BatchNorm2d(c), nn.Conv2d(c, 4 * c, 1), nn.Conv2d(4 * c, c, 1)
    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(self.norm(self.depth(x)))))
model = nn.Sequential(nn.Conv2d(3, 64, 4, 4), Block(64), Block(64), nn.Conv2d(64, 128, 2, 2), Block(128), Block(128), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                      nn.Linear(128, 20)).cuda().to(memory_format=torch.channels_last)
step_model = torch.compile(model, fullgraph=True)
optimizer, scaler = torch.optim.AdamW(model.parameters(), lr=1e-3), torch.amp.GradScaler()
for step in range(5):
    images = torch.randn(48, 3, 192, 192, device="cuda").contiguous(memory_format=torch.channels_last)
    with torch.autocast("cuda", dtype=torch.float16):
        loss = nn.functional.cross_entropy(step_model(images), torch.randint(0, 20, (48,), device="cuda"))
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
