"""CIFAR as its speed records train it: pictures in fp16 on the card, a whitening convolution, Dirac starts, flips in turns, SGD with momentum, a tenfold test with views."""
import torch
import torch.nn.functional as F
from torch import nn

torch.manual_seed(0)
torch.backends.cudnn.benchmark = False


class Group(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(a, b, 3, padding="same", bias=False), nn.Conv2d(b, b, 3, padding="same", bias=False)
        self.norm1, self.norm2 = nn.BatchNorm2d(b, momentum=0.4), nn.BatchNorm2d(b, momentum=0.4)
        self.norm1.weight.requires_grad = self.norm2.weight.requires_grad = False
        nn.init.dirac_(self.conv1.weight[:a])
        nn.init.dirac_(self.conv2.weight)

    def forward(self, x):
        x = F.gelu(self.norm1(F.max_pool2d(self.conv1(x), 2)))
        return F.gelu(self.norm2(self.conv2(x)))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.whiten = nn.Conv2d(3, 24, 2, padding=0, bias=True)
        self.whiten.weight.requires_grad = False
        self.groups = nn.Sequential(Group(24, 64), Group(64, 256), Group(256, 256))
        self.head = nn.Linear(256, 10, bias=False)

    def init_whiten(self, x):
        patches = x.unfold(2, 2, 1).unfold(3, 2, 1).transpose(1, 3).reshape(-1, 12).float()
        values, vectors = torch.linalg.eigh(patches.T @ patches / len(patches), UPLO="U")
        scaled = vectors.T.reshape(12, 3, 2, 2) / torch.sqrt(values.view(12, 1, 1, 1) + 5e-4)
        self.whiten.weight.data[:] = torch.cat([scaled, -scaled])

    def forward(self, x):
        x = F.gelu(self.whiten(x))
        x = F.max_pool2d(self.groups(x), 3)
        return self.head(x.flatten(1)) / 9


images = torch.randint(0, 256, (20000, 3, 32, 32), dtype=torch.uint8).cuda()
images = (images.half() / 255 - 0.45) / 0.25
images = images.to(memory_format=torch.channels_last)
labels = torch.randint(0, 10, (20000,), device="cuda")
net = Net().cuda().half().to(memory_format=torch.channels_last)
for m in net.modules():
    if isinstance(m, nn.BatchNorm2d):
        m.float()
net.init_whiten(images[:5000].contiguous())
biases = [p for n, p in net.named_parameters() if "norm" in n and p.requires_grad]
others = [p for n, p in net.named_parameters() if "norm" not in n and p.requires_grad]
optimizer = torch.optim.SGD([dict(params=biases, lr=6.4, weight_decay=1e-5), dict(params=others, lr=0.1, weight_decay=1e-4)], momentum=0.85, nesterov=True)
for epoch in range(2):
    turned = images.flip(-1) if epoch % 2 else images
    padded = F.pad(turned, (2,) * 4, "reflect")
    shift = torch.randint(-2, 3, (len(images), 2), device="cuda")
    moved = torch.empty_like(images)
    for a in range(-2, 3):
        for b in range(-2, 3):
            at = (shift[:, 0] == a) & (shift[:, 1] == b)
            moved[at] = padded[at, :, 2 + a:34 + a, 2 + b:34 + b]
    order = torch.randperm(len(images), device="cuda")
    for i in range(10):
        chosen = order[i * 2000:(i + 1) * 2000]
        loss = F.cross_entropy(net(moved[chosen]), labels[chosen], label_smoothing=0.2, reduction="sum")
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
net.eval()
with torch.no_grad():
    said = []
    for part in images.split(2000):
        views = [part, part.flip(-1)] + [F.pad(v, (1,) * 4, "reflect")[:, :, 0:32, 0:32] for v in (part, part.flip(-1))]
        said.append(sum(net(v) for v in views))
print(loss.item(), (torch.cat(said).argmax(1) == labels).float().mean().item())
