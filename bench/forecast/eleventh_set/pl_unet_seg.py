"""A U-Net that segments, channels-last, fp16 autocast with GradScaler, cross entropy and Dice, a validation that counts overlaps."""
import torch
from torch import nn

torch.manual_seed(0)
double = lambda i, o: nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True), nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))


class UNet(nn.Module):
    def __init__(self, widths=(32, 64, 128, 256, 512), classes=4):
        super().__init__()
        self.down = nn.ModuleList(double(i, o) for i, o in zip((3, *widths), widths))
        self.up = nn.ModuleList(nn.ConvTranspose2d(b, a, 2, 2) for a, b in zip(widths, widths[1:]))
        self.join = nn.ModuleList(double(2 * a, a) for a in widths[:-1])
        self.head = nn.Conv2d(widths[0], classes, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else nn.functional.max_pool2d(x, 2))
            skips.append(x)
        for i in reversed(range(len(self.up))):
            x = self.join[i](torch.cat([skips[i], self.up[i](x)], 1))
        return self.head(x)


def dice(scores, wanted):
    p, w = scores.softmax(1), nn.functional.one_hot(wanted, 4).permute(0, 3, 1, 2).float()
    return 1 - ((2 * (p * w).sum((0, 2, 3)) + 1) / ((p + w).sum((0, 2, 3)) + 1)).mean()


model = UNet().to("cuda", memory_format=torch.channels_last)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler()
for step in range(6):
    model.train()
    x = torch.rand(8, 3, 256, 256).to("cuda", memory_format=torch.channels_last, non_blocking=True)
    wanted = torch.randint(0, 4, (8, 256, 256)).cuda()
    with torch.autocast("cuda", dtype=torch.float16):
        scores = model(x)
        loss = nn.functional.cross_entropy(scores, wanted) + dice(scores.float(), wanted)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    if step % 3 == 2:
        model.eval()
        with torch.no_grad():
            found = model(x[:4]).argmax(1)
            print(step, [((found == c) & (wanted[:4] == c)).sum().item() for c in range(4)])
