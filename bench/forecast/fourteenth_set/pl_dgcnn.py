"""DGCNN: points whose neighbours are found anew in each layer by their features, labels smoothed, jitter and drops, SGD with a cosine; then parts of shapes, voted."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


def edges(x, k=20):
    inner = -2 * torch.matmul(x.transpose(2, 1), x)
    square = (x ** 2).sum(1, keepdim=True)
    near = (-square - inner - square.transpose(2, 1)).topk(k=k, dim=-1)[1]
    b, c, n = x.shape
    flat = (near + torch.arange(b, device=x.device).view(-1, 1, 1) * n).view(-1)
    x = x.transpose(2, 1).contiguous()
    found = x.view(b * n, -1)[flat].view(b, n, k, c)
    x = x.view(b, n, 1, c).repeat(1, 1, k, 1)
    return torch.cat((found - x, x), 3).permute(0, 3, 1, 2).contiguous()


class Dgcnn(nn.Module):
    def __init__(self, labels=40):
        super().__init__()
        conv = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.2))
        self.layers = nn.ModuleList([conv(6, 64), conv(128, 64), conv(128, 128), conv(256, 256)])
        self.mix = nn.Sequential(nn.Conv1d(512, 1024, 1, bias=False), nn.BatchNorm1d(1024), nn.LeakyReLU(0.2))
        self.head = nn.Sequential(nn.Linear(2048, 512, bias=False), nn.BatchNorm1d(512), nn.LeakyReLU(0.2), nn.Dropout(0.5), nn.Linear(512, 256), nn.BatchNorm1d(256), nn.LeakyReLU(0.2), nn.Dropout(0.5), nn.Linear(256, labels))

    def forward(self, x):
        kept = []
        for layer in self.layers:
            x = layer(edges(x)).max(dim=-1)[0]
            kept.append(x)
        x = self.mix(torch.cat(kept, 1))
        return self.head(torch.cat([F.adaptive_max_pool1d(x, 1).flatten(1), F.adaptive_avg_pool1d(x, 1).flatten(1)], 1))


model = nn.DataParallel(Dgcnn().cuda())
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10, eta_min=1e-3)
for step in range(5):
    points = torch.rand(24, 3, 1024) * 2 - 1
    points = points * torch.empty(24, 3, 1).uniform_(2 / 3, 3 / 2) + torch.clamp(0.01 * torch.randn_like(points), -0.02, 0.02)
    y = torch.randint(0, 40, (24,)).cuda()
    logits = model(points.cuda())
    hot = torch.zeros_like(logits).scatter(1, y.view(-1, 1), 1)
    hot = hot * 0.8 + (1 - hot) * 0.2 / 39
    loss = -(hot * F.log_softmax(logits, 1)).sum(1).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rate.step()
model.eval()
with torch.no_grad():
    votes = sum(F.softmax(model(torch.rand(16, 3, 1024, device="cuda")), 1) for _ in range(3))
print(loss.item(), votes.argmax(1).bincount(minlength=40).max().item())
