"""torchvision: FCOS on a ResNet-50, pictures of several sizes, SGD with momentum, a warm-up, then boxes of an evaluation."""
import torch
from torchvision.models.detection import fcos_resnet50_fpn

torch.manual_seed(0)
model = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=20, min_size=320, max_size=480, trainable_backbone_layers=3).cuda().train()
parameters = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.SGD(parameters, lr=1e-3, momentum=0.9, weight_decay=1e-4)
warm = torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=4)
for step in range(5):
    pictures = [torch.rand(3, 320, 320 + 40 * i, device="cuda") for i in range(4)]
    targets = []
    for n in (3, 7, 1, 5):
        corner = torch.rand(n, 2, device="cuda") * 200
        targets.append({"boxes": torch.cat([corner, corner + 20 + torch.rand(n, 2, device="cuda") * 90], 1), "labels": torch.randint(1, 20, (n,), device="cuda")})
    loss = sum(model(pictures, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    warm.step()
model.eval()
with torch.no_grad():
    print(loss.item(), len(model(pictures[:2])))
