"""MoCo v2: two ResNet-18, a queue of 16384 keys, a momentum encoder, shuffled batch norm, SGD, NT-Xent in FP32 under bf16 autocast."""
import copy
import torch
from torch import nn
from torchvision.models import resnet18

torch.manual_seed(0)
torch.backends.cudnn.benchmark = False
query = resnet18(num_classes=128)
query.fc = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), query.fc)
query.cuda()
key = copy.deepcopy(query).requires_grad_(False)
queue = nn.functional.normalize(torch.randn(128, 16384, device="cuda"), dim=0)
pointer = 0
optimizer = torch.optim.SGD(query.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
augment = lambda x: (x.flip(-1) if torch.rand(()).item() < 0.5 else x) * (0.8 + 0.4 * torch.rand(len(x), 1, 1, 1, device="cuda"))
for step in range(6):
    pictures = torch.rand(96, 3, 112, 112, device="cuda")
    with torch.no_grad():
        for a, b in zip(key.parameters(), query.parameters()):
            a.mul_(0.999).add_(b, alpha=0.001)
        order = torch.randperm(96, device="cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            k = key(augment(pictures)[order])
        k = nn.functional.normalize(k.float()[order.argsort()], dim=1)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        q = query(augment(pictures))
    q = nn.functional.normalize(q.float(), dim=1)
    scores = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone()], 1) / 0.2
    loss = nn.functional.cross_entropy(scores, torch.zeros(96, dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue[:, pointer:pointer + 96] = k.T
    pointer = (pointer + 96) % 16384
print(loss.item())
