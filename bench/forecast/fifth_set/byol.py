"""BYOL: a ResNet-18 for small pictures, views by torchvision's transforms on the card, a target that is a moving average, LARS by hand."""
import copy
import torch
import torch.nn as nn
import torchvision
from torchvision.transforms import v2
torch.manual_seed(0)
augment = v2.Compose([v2.RandomResizedCrop(64, (0.2, 1.0), antialias=True), v2.RandomHorizontalFlip(), v2.ColorJitter(0.4, 0.4, 0.2, 0.1), v2.GaussianBlur(5)])
def head(a, b=1024, c=256):
    return nn.Sequential(nn.Linear(a, b), nn.BatchNorm1d(b), nn.ReLU(inplace=True), nn.Linear(b, c))
body = torchvision.models.resnet18()
body.conv1, body.maxpool, body.fc = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.Identity(), head(512)
online, predictor = body.cuda(), head(256).cuda()
target = copy.deepcopy(online).requires_grad_(False)
params = [*online.parameters(), *predictor.parameters()]
momentum = [torch.zeros_like(p) for p in params]
def loss_of(a, b):
    return 2 - 2 * nn.functional.cosine_similarity(a, b, dim=-1).mean()
for step in range(4):
    x = torch.rand(40, 3, 80, 80, device="cuda")
    a, b = augment(x), augment(x)
    with torch.autocast("cuda", torch.float16):
        pa, pb = predictor(online(a)), predictor(online(b))
        with torch.no_grad():
            ta, tb = target(a), target(b)
        loss = loss_of(pa.float(), tb.float()) + loss_of(pb.float(), ta.float())
    (loss * 256).backward()
    with torch.no_grad():
        for p, m in zip(params, momentum):
            g = p.grad / 256
            if p.ndim > 1:
                g = g + 1e-6 * p
                w, n = p.norm(), g.norm()
                g = g * torch.where(w > 0, torch.where(n > 0, 0.001 * w / n, 1.0), 1.0)
            m.mul_(0.9).add_(g)
            p.sub_(0.2 * m)
            p.grad = None
        for t, o in zip(target.parameters(), online.parameters()):
            t.lerp_(o, 0.01)
print(loss.item())
