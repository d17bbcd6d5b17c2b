"""A U-Net for masks of cars: bilinear upsampling, RMSprop with momentum, fp16 with a scaler, channels-last, cross entropy and Dice, gradients
clipped, Dice in an evaluation."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
def double(i, o, m=None):
    m = m or o
    return nn.Sequential(nn.Conv2d(i, m, 3, padding=1, bias=False), nn.BatchNorm2d(m), nn.ReLU(True),
                         nn.Conv2d(m, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(True))
class UNet(nn.Module):
    def __init__(self, w=48):
        super().__init__()
        self.inc, self.out = double(3, w), nn.Conv2d(w, 2, 1)
        self.downs = nn.ModuleList(double(w << i, w << min(i + 1, 3)) for i in range(4))
        self.ups = nn.ModuleList(double(2 * (w << i), w << max(i - 1, 0), (w << i)) for i in (3, 2, 1, 0))
    def forward(self, x):
        skips = [self.inc(x)]
        for d in self.downs:
            skips.append(d(F.max_pool2d(skips[-1], 2)))
        x = skips.pop()
        for u in self.ups:
            s = skips.pop()
            x = F.interpolate(x, scale_factor=2, mode="bilinear", align_corners=True)
            x = F.pad(x, [0, s.shape[3] - x.shape[3], 0, s.shape[2] - x.shape[2]])
            x = u(torch.cat([s, x], 1))
        return self.out(x)
def dice(p, t):
    inter = 2 * (p * t).sum((-1, -2))
    total = p.sum((-1, -2)) + t.sum((-1, -2))
    return ((torch.where(total == 0, inter, total).add(1e-6)) ** -1 * (inter + 1e-6)).mean()
model = UNet().to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.RMSprop(model.parameters(), 1e-5, weight_decay=1e-8, momentum=0.999, foreach=True)
scaler = torch.amp.GradScaler("cuda")
for step in range(5):
    model.train()
    x = torch.rand(3, 3, 321, 478).to("cuda", memory_format=torch.channels_last)
    y = torch.randint(0, 2, (3, 321, 478)).cuda()
    with torch.autocast("cuda"):
        out = model(x)
        loss = F.cross_entropy(out, y) + 1 - dice(out.softmax(1).float(), F.one_hot(y, 2).permute(0, 3, 1, 2).float())
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    if step in (1, 4):
        model.eval()
        with torch.inference_mode(), torch.autocast("cuda"):
            p = F.one_hot(model(x).argmax(1), 2).permute(0, 3, 1, 2).float()
            print(dice(p[:, 1:], y[:, None].float()).item())
