"""Adversarial training: TRADES on a pre-activation Wide ResNet, ten steps of PGD inside each step, averaged weights; then attacks that restart and keep the worst."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Wide(nn.Module):
    def __init__(self, a, b, stride):
        super().__init__()
        self.n1, self.n2, self.c1, self.c2 = nn.BatchNorm2d(a), nn.BatchNorm2d(b), nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.Conv2d(b, b, 3, 1, 1, bias=False)
        self.side = nn.Conv2d(a, b, 1, stride, bias=False) if a != b or stride > 1 else None

    def forward(self, x):
        y = F.relu(self.n1(x), inplace=True)
        z = self.c2(F.relu(self.n2(self.c1(y)), inplace=True))
        return z + (self.side(y) if self.side is not None else x)


def wide_resnet(w=64):
    layers = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)]
    for a, b, stride in ((16, w, 1), (w, w, 1), (w, 2 * w, 2), (2 * w, 2 * w, 1), (2 * w, 4 * w, 2), (4 * w, 4 * w, 1)):
        layers.append(Wide(a, b, stride))
    return nn.Sequential(*layers, nn.BatchNorm2d(4 * w), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * w, 10))


net = wide_resnet().cuda()
average = copy.deepcopy(net).requires_grad_(False)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
for step in range(3):
    x, y = torch.rand(96, 3, 32, 32, device="cuda"), torch.randint(0, 10, (96,), device="cuda")
    net.eval()
    plain = F.softmax(net(x), 1).detach()
    bad = x + 0.001 * torch.randn_like(x)
    for _ in range(10):
        bad.requires_grad_()
        with torch.enable_grad():
            gap = F.kl_div(F.log_softmax(net(bad), 1), plain, reduction="sum")
        slope = torch.autograd.grad(gap, [bad])[0]
        bad = bad.detach() + 0.007 * slope.sign()
        bad = torch.min(torch.max(bad, x - 8 / 255), x + 8 / 255).clamp(0, 1)
    net.train()
    optimizer.zero_grad()
    logits = net(x)
    loss = F.cross_entropy(logits, y) + 6 / len(x) * F.kl_div(F.log_softmax(net(bad), 1), F.softmax(logits, 1), reduction="sum")
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for a, b in zip(average.state_dict().values(), net.state_dict().values()):
            a.copy_(0.995 * a + 0.005 * b) if a.is_floating_point() else a.copy_(b)
average.eval()
x, y = torch.rand(200, 3, 32, 32, device="cuda"), torch.randint(0, 10, (200,), device="cuda")
worst, most = x.clone(), torch.full((200,), -1.0, device="cuda")
for restart in range(2):
    delta = torch.empty_like(x).uniform_(-8 / 255, 8 / 255)
    for _ in range(8):
        delta.requires_grad_(True)
        F.cross_entropy(average((x + delta).clamp(0, 1)), y).backward()
        delta = (delta + 2 / 255 * delta.grad.sign()).clamp(-8 / 255, 8 / 255).detach()
    with torch.no_grad():
        each = F.cross_entropy(average((x + delta).clamp(0, 1)), y, reduction="none")
        better = each > most
        worst = torch.where(better[:, None, None, None], x + delta, worst)
        most = torch.maximum(each, most)
with torch.no_grad():
    print(loss.item(), (average(worst).argmax(1) == y).float().mean().item())
