"""Small training programs with torch.backends.cudnn.benchmark = True. The last line that one prints is its name and PyTorch's peaks.

    python3 tried_programs.py NAME
"""
import sys
import torch
from torch import nn
import torch.nn.functional as F

torch.backends.cudnn.benchmark = True
NAME = sys.argv[1]
STEPS = 4


def train(model, x, target, loss=F.cross_entropy, amp=None, lr=1e-3, opt=torch.optim.SGD, last=False):
    model = model.cuda()
    if last:
        model, x = model.to(memory_format=torch.channels_last), x.contiguous(memory_format=torch.channels_last)
    o = opt(model.parameters(), lr=lr)
    scaler = torch.amp.GradScaler("cuda", enabled=amp is torch.float16)
    for _ in range(STEPS):
        o.zero_grad(set_to_none=True)
        with torch.autocast("cuda", amp, enabled=amp is not None):
            y = model(x.cuda(non_blocking=True))
            y = y["out"] if isinstance(y, dict) else y
            e = loss(y, target.cuda())
        scaler.scale(e).backward()
        scaler.step(o)
        scaler.update()
    torch.cuda.synchronize()


def images(n, size, c=3, classes=1000):
    return torch.randn(n, c, size, size), torch.randint(0, classes, (n,))


def vision(name, batch, size, **how):
    import torchvision
    where = torchvision.models.video if name.startswith("r3d") else torchvision.models.segmentation if name.startswith("fcn") else torchvision.models
    model = getattr(where, name)(**({"weights": None, "weights_backbone": None} if name.startswith("fcn") else {"weights": None}))
    if name.startswith("fcn"):
        return train(model, torch.randn(batch, 3, size, size), torch.randint(0, 21, (batch, size, size)), **how)
    x, t = images(batch, size) if not name.startswith("r3d") else (torch.randn(batch, 3, 8, size, size), torch.randint(0, 400, (batch,)))
    train(model, x, t, **how)


def dcgan(batch, amp=None, bias=False, f=4):
    p = 1 if f == 4 else 2
    up = lambda a, b: [nn.ConvTranspose2d(a, b, f, 2, p, output_padding=0 if f == 4 else 1, bias=bias), nn.BatchNorm2d(b), nn.ReLU(True)]
    down = lambda a, b: [nn.Conv2d(a, b, f, 2, p, bias=bias), nn.BatchNorm2d(b), nn.LeakyReLU(0.2, True)]
    g = nn.Sequential(nn.ConvTranspose2d(100, 512, 4, 1, 0, bias=bias), nn.BatchNorm2d(512), nn.ReLU(True), *up(512, 256), *up(256, 128), *up(128, 64),
                      nn.ConvTranspose2d(64, 3, 4, 2, 1, bias=bias), nn.Tanh()).cuda()
    d = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1, bias=bias), nn.LeakyReLU(0.2, True), *down(64, 128), *down(128, 256), *down(256, 512),
                      nn.Conv2d(512, 1, 4, 1, 0, bias=bias), nn.Flatten(0)).cuda()
    og, od = torch.optim.Adam(g.parameters(), 2e-4, (0.5, 0.999)), torch.optim.Adam(d.parameters(), 2e-4, (0.5, 0.999))
    real = torch.randn(batch, 3, 64, 64, device="cuda")
    for _ in range(STEPS):
        with torch.autocast("cuda", amp or torch.bfloat16, enabled=amp is not None):
            od.zero_grad()
            e = F.binary_cross_entropy_with_logits(d(real), torch.ones(batch, device="cuda"))
            e.backward()
            fake = g(torch.randn(batch, 100, 1, 1, device="cuda"))
            F.binary_cross_entropy_with_logits(d(fake.detach()), torch.zeros(batch, device="cuda")).backward()
            od.step()
            og.zero_grad()
            F.binary_cross_entropy_with_logits(d(fake), torch.ones(batch, device="cuda")).backward()
            og.step()
    torch.cuda.synchronize()


class Double(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True), nn.Conv2d(b, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU(True))


class UNet(nn.Module):
    def __init__(self, w=64, c=3, out=2):
        super().__init__()
        self.first, self.downs, self.ups, self.doubles = Double(c, w), nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        for i in range(3):
            self.downs.append(Double(w << i, w << (i + 1)))
        for i in reversed(range(3)):
            self.ups.append(nn.ConvTranspose2d(w << (i + 1), w << i, 2, 2))
            self.doubles.append(Double(w << (i + 1), w << i))
        self.last = nn.Conv2d(w, out, 1)

    def forward(self, x):
        kept = [self.first(x)]
        for d in self.downs:
            kept.append(d(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for u, d in zip(self.ups, self.doubles):
            x = d(torch.cat([kept.pop(), u(x)], 1))
        return self.last(x)


def unet(batch, size, w=64, **how):
    train(UNet(w), torch.randn(batch, 3, size, size), torch.randint(0, 2, (batch, size, size)), **how)


def cifar(batch, **how):
    block = lambda a, b, s: nn.Sequential(nn.Conv2d(a, b, 3, s, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU(), nn.Conv2d(b, b, 3, 1, 1, bias=False),
                                          nn.BatchNorm2d(b), nn.ReLU())
    net = nn.Sequential(nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64), nn.ReLU(), block(64, 64, 1), block(64, 128, 2), block(128, 256, 2),
                        block(256, 512, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    train(net, *images(batch, 32, classes=10), **how)


def mnist(batch):
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(),
                        nn.Linear(9216, 128), nn.ReLU(), nn.Linear(128, 10))
    train(net, *images(batch, 28, 1, 10), opt=torch.optim.Adadelta)


def edsr(batch):
    body = [nn.Sequential(nn.Conv2d(64, 64, 3, 1, 1), nn.ReLU(), nn.Conv2d(64, 64, 3, 1, 1)) for _ in range(4)]
    net = nn.Sequential(nn.Conv2d(3, 64, 9, 1, 4), nn.PReLU(), *body, nn.Conv2d(64, 256, 3, 1, 1), nn.PixelShuffle(2), nn.Conv2d(64, 3, 9, 1, 4))
    train(net, torch.randn(batch, 3, 48, 48), torch.randn(batch, 3, 96, 96), loss=F.mse_loss, opt=torch.optim.Adam)


def sound(batch):
    net = nn.Sequential(nn.Conv1d(1, 64, 80, 4), nn.BatchNorm1d(64), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(64, 64, 3), nn.BatchNorm1d(64), nn.ReLU(),
                        nn.MaxPool1d(4),
                        nn.Conv1d(64, 128, 3), nn.BatchNorm1d(128), nn.ReLU(), nn.MaxPool1d(4), nn.Conv1d(128, 256, 3), nn.BatchNorm1d(256), nn.ReLU(),
                        nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(256, 35))
    train(net, torch.randn(batch, 1, 16000), torch.randint(0, 35, (batch,)))


bf16, fp16, adam = torch.bfloat16, torch.float16, torch.optim.AdamW
PROGRAMS = {
    "dcgan64": lambda: dcgan(64), "dcgan128_amp": lambda: dcgan(128, fp16), "dcgan5x5": lambda: dcgan(32, None, True, 5),
    "resnet18": lambda: vision("resnet18", 64, 224), "resnet50_amp_last": lambda: vision("resnet50", 32, 224, amp=bf16, last=True),
    "resnet50_fp16": lambda: vision("resnet50", 32, 224, amp=fp16), "resnet50": lambda: vision("resnet50", 24, 224), "unet": lambda: unet(4, 128),
    "unet_amp": lambda: unet(8, 128, amp=bf16, opt=adam), "unet_last": lambda: unet(4, 160, 32, last=True), "cifar": lambda: cifar(128),
    "cifar_amp": lambda: cifar(256, amp=fp16), "mnist": lambda: mnist(64), "edsr": lambda: edsr(16), "sound": lambda: sound(64),
    "vgg11": lambda: vision("vgg11", 16, 224), "vgg16_amp": lambda: vision("vgg16_bn", 16, 224, amp=bf16), "alexnet": lambda: vision("alexnet", 64, 224),
    "convnext": lambda: vision("convnext_tiny", 16, 224, amp=bf16, opt=adam), "mobilenet": lambda: vision("mobilenet_v2", 32, 224),
    "efficientnet_last": lambda: vision("efficientnet_b0", 32, 224, amp=fp16, last=True), "densenet": lambda: vision("densenet121", 16, 224),
    "vit": lambda: vision("vit_b_16", 8, 224, opt=adam), "r3d": lambda: vision("r3d_18", 4, 112), "fcn": lambda: vision("fcn_resnet50", 4, 224),
    "shufflenet": lambda: vision("shufflenet_v2_x1_0", 64, 224), "resnext": lambda: vision("resnext50_32x4d", 16, 224, amp=bf16),
    "squeezenet": lambda: vision("squeezenet1_1", 64, 224)}

if __name__ == "__main__":
    if NAME == "names":
        print(*PROGRAMS)
    else:
        torch.manual_seed(0)
        PROGRAMS[NAME]()
        print(f"{NAME},{torch.cuda.max_memory_allocated()},{torch.cuda.max_memory_reserved()}")
