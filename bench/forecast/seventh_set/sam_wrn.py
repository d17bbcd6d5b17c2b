"""A wide residual network with adaptive SAM: two passes a step, running sums of norms stopped in the second, cutout, FP32 with tf32, cosine rate."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
torch.backends.cudnn.allow_tf32 = True
torch.backends.cuda.matmul.allow_tf32 = True
class Wide(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.n1, self.c1, self.n2, self.c2 = nn.BatchNorm2d(i), nn.Conv2d(i, o, 3, s, 1, bias=False), nn.BatchNorm2d(o), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.skip = None if i == o else nn.Conv2d(i, o, 1, s, bias=False)
    def forward(self, x):
        y = F.leaky_relu(self.n1(x), 0.1)
        return self.c2(F.dropout(F.leaky_relu(self.n2(self.c1(y)), 0.1), 0.1, self.training)) + (x if self.skip is None else self.skip(y))
blocks, i = [nn.Conv2d(3, 16, 3, padding=1, bias=False)], 16
for o, s in ((96, 1), (96, 1), (192, 2), (192, 1), (384, 2), (384, 1)):
    blocks.append(Wide(i, o, s))
    i = o
model = nn.Sequential(*blocks, nn.BatchNorm2d(i), nn.LeakyReLU(0.1), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(i, 10)).cuda()
norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
base = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=5e-4)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(base, 6)
for step in range(6):
    x, y = torch.randn(100, 3, 32, 32, device="cuda"), torch.randint(0, 10, (100,), device="cuda")
    cx, cy = torch.randint(0, 24, (2,)).tolist()
    x[:, :, cx:cx + 8, cy:cy + 8] = 0
    F.cross_entropy(model(x), y, label_smoothing=0.1).backward()
    with torch.no_grad():
        norm = torch.norm(torch.stack([(p.abs() * p.grad).norm() for p in model.parameters()]))
        moves = []
        for p in model.parameters():
            e = p.square() * p.grad * (2.0 / (norm + 1e-12))
            p.add_(e)
            moves.append(e)
    base.zero_grad()
    for n in norms:
        n.backup, n.momentum = n.momentum, 0
    loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
    loss.backward()
    with torch.no_grad():
        torch._foreach_sub_(list(model.parameters()), moves)
    for n in norms:
        n.momentum = n.backup
    base.step()
    base.zero_grad()
    schedule.step()
print(loss.item())
