"""torchvision: Keypoint R-CNN as its reference trains it: SGD, warm-up, pictures of many sizes, one with nobody in it, then its boxes."""
import torch
from torchvision.models.detection import keypointrcnn_resnet50_fpn

torch.manual_seed(0)
model = keypointrcnn_resnet50_fpn(weights=None, weights_backbone=None, num_keypoints=17, min_size=(320, 352, 384), max_size=512).cuda()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9, weight_decay=1e-4)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=4)
g = torch.Generator().manual_seed(1)


def example(n):
    h, w = (int(x) for x in torch.randint(280, 480, (2,), generator=g))
    at = torch.rand(n, 2, generator=g) * torch.tensor([w / 2, h / 2])
    boxes = torch.cat([at, at + 40 + torch.rand(n, 2, generator=g) * 80], 1)
    points = torch.cat([boxes[:, None, :2] + torch.rand(n, 17, 2, generator=g) * 40, torch.ones(n, 17, 1)], -1)
    return torch.rand(3, h, w, generator=g), {"boxes": boxes, "labels": torch.ones(n, dtype=torch.int64), "keypoints": points}


for step in range(5):
    pictures, targets = zip(*(example(n) for n in (2, 1, 3, 0 if step == 2 else 4)))
    losses = model([p.cuda() for p in pictures], [{k: v.cuda() for k, v in t.items()} for t in targets])
    loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warm.step()
model.eval()
with torch.inference_mode():
    print(len(model([p.cuda() for p in pictures])))
