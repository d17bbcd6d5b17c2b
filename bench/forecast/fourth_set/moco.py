"""MoCo: a queue of keys on the card, a slow encoder, shuffled batch norm."""
import copy
import torch
import torch.nn.functional as F
from torchvision.models import resnet18
torch.manual_seed(0)
fast = resnet18(num_classes=128).cuda()
slow = copy.deepcopy(fast).requires_grad_(False)
queue, place = F.normalize(torch.randn(128, 16384, device="cuda"), dim=0), 0
optimizer = torch.optim.SGD(fast.parameters(), lr=0.03, momentum=0.9, weight_decay=1e-4)
for step in range(5):
    left, right = torch.randn(48, 3, 128, 128, device="cuda"), torch.randn(48, 3, 128, 128, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        q = F.normalize(fast(left), dim=1)
        with torch.no_grad():
            for a, b in zip(fast.parameters(), slow.parameters()):
                b.mul_(0.999).add_(a, alpha=0.001)
            order = torch.randperm(48, device="cuda")
            k = F.normalize(slow(right[order]), dim=1)[torch.argsort(order)]
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.clone().to(q.dtype)], 1) / 0.07
        loss = F.cross_entropy(logits.float(), torch.zeros(48, dtype=torch.long, device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    queue[:, place:place + 48] = k.T
    place = (place + 48) % 16384
