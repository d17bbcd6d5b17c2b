"""Depthwise and grouped convolutions with shuffled channels and squeezed ones, FP32 without tf32, momentum of norms as mean."""
import torch
import torch.nn as nn
torch.manual_seed(0)
torch.backends.cudnn.allow_tf32 = False
class Block(nn.Module):
    def __init__(self, c, groups=4):
        super().__init__()
        self.groups = groups
        self.a, self.b, self.c = nn.Conv2d(c, 2 * c, 1, groups=groups), nn.Conv2d(2 * c, 2 * c, 5, padding=2, groups=2 * c), nn.Conv2d(2 * c, c, 1, groups=groups)
        self.n, self.m = nn.BatchNorm2d(2 * c, momentum=None), nn.BatchNorm2d(c, affine=False)
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Conv2d(2 * c, c // 4, 1), nn.SiLU(), nn.Conv2d(c // 4, 2 * c, 1), nn.Sigmoid())
    def forward(self, x):
        y = nn.functional.hardswish(self.n(self.a(x)))
        y = nn.functional.channel_shuffle(y, self.groups)
        y = self.b(y)
        y = y * self.squeeze(y)
        return torch.relu_(x + self.m(self.c(y)))
model = nn.Sequential(nn.Conv2d(3, 64, 3, 2, 1), Block(64), Block(64), nn.Conv2d(64, 128, 3, 2, 1, groups=8), Block(128), Block(128), nn.AdaptiveMaxPool2d(1),
                      nn.Flatten(), nn.Linear(128, 30)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for step in range(5):
    loss = nn.functional.cross_entropy(model(torch.randn(24, 3, 160, 160, device="cuda")), torch.randint(0, 30, (24,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
