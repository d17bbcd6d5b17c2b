"""torchvision: SSDlite on MobileNet v3 as its references train it, warm-up of the first steps, SGD with momentum, fp16 with a scaler, boxes found in an evaluation."""
import torch
import torchvision

torch.manual_seed(0)
model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=21).cuda()
parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(parameters, lr=0.02, momentum=0.9, weight_decay=5e-4)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=4)
scaler = torch.amp.GradScaler()


def batch(n):
    pictures = [torch.rand(3, int(h), int(w)) for h, w in torch.randint(280, 420, (n, 2))]
    targets = []
    for picture in pictures:
        k = int(torch.randint(1, 7, (1,)))
        corner, size = torch.rand(k, 2) * 150, torch.rand(k, 2) * 100 + 20
        targets.append({"boxes": torch.cat([corner, corner + size], 1), "labels": torch.randint(1, 21, (k,))})
    return [p.cuda(non_blocking=True) for p in pictures], [{k: v.cuda() for k, v in t.items()} for t in targets]


model.train()
for step in range(6):
    pictures, targets = batch(24)
    with torch.amp.autocast("cuda"):
        losses = model(pictures, targets)
        loss = sum(losses.values())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    warm.step()
print({k: v.item() for k, v in losses.items()})
model.eval()
with torch.inference_mode():
    for _ in range(2):
        found = [{k: v.cpu() for k, v in t.items()} for t in model(batch(8)[0])]
print(len(found))
