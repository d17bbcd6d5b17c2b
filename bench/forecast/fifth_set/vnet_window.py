"""Volumes: a V-Net in bf16, Dice and cross entropy with deep supervision, then a whole scan by overlapping windows with Gaussian weights."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
def conv(a, b, s=1):
    return nn.Sequential(nn.Conv3d(a, b, 3, s, 1), nn.InstanceNorm3d(b, affine=True), nn.LeakyReLU(0.01, inplace=True))
class Net(nn.Module):
    def __init__(self, c=20, classes=4):
        super().__init__()
        w = [c, 2 * c, 4 * c, 8 * c]
        self.down = nn.ModuleList([conv(1, w[0]), *(nn.Sequential(conv(a, b, 2), conv(b, b)) for a, b in zip(w, w[1:]))])
        self.ups = nn.ModuleList(nn.ConvTranspose3d(b, a, 2, 2) for a, b in reversed(list(zip(w, w[1:]))))
        self.mix = nn.ModuleList(conv(2 * a, a) for a in reversed(w[:-1]))
        self.heads = nn.ModuleList(nn.Conv3d(a, classes, 1) for a in reversed(w[:-1]))
    def forward(self, x):
        seen = []
        for d in self.down:
            x = d(x)
            seen.append(x)
        outs = []
        for up, mix, head, s in zip(self.ups, self.mix, self.heads, reversed(seen[:-1])):
            x = mix(torch.cat([up(x), s], 1))
            outs.append(head(x))
        return outs
def dice(logits, y):
    p, t = logits.softmax(1), F.one_hot(y, 4).permute(0, 4, 1, 2, 3).float()
    return 1 - ((2 * (p * t).sum((2, 3, 4)) + 1e-5) / (p.sum((2, 3, 4)) + t.sum((2, 3, 4)) + 1e-5)).mean()
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.99, nesterov=True)
for step in range(4):
    x, y = torch.randn(2, 1, 48, 64, 64, device="cuda"), torch.randint(0, 4, (2, 48, 64, 64), device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        outs = model(x)
    loss = 0
    for w, o in zip((0.25, 0.5, 1.0), outs):
        t = F.interpolate(y[:, None].float(), o.shape[2:]).long()[:, 0]
        loss = loss + w * (dice(o.float(), t) + F.cross_entropy(o.float(), t))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
axes = [torch.exp(-((torch.arange(n, device="cuda") - n / 2) / (n / 4)) ** 2 / 2) for n in (48, 64, 64)]
weight = axes[0][:, None, None] * axes[1][None, :, None] * axes[2][None, None]
scan = torch.randn(1, 1, 96, 150, 150)
total, count = torch.zeros(4, 96, 150, 150, device="cuda"), torch.zeros(96, 150, 150, device="cuda")
with torch.no_grad():
    for z in (0, 24, 48):
        for v in (0, 32, 64, 86):
            for u in (0, 32, 64, 86):
                part = model(scan[:, :, z:z + 48, v:v + 64, u:u + 64].cuda())[-1][0]
                total[:, z:z + 48, v:v + 64, u:u + 64] += part * weight
                count[z:z + 48, v:v + 64, u:u + 64] += weight
    print((total / count).argmax(0).cpu().float().mean())
