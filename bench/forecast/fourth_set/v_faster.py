"""torchvision: Faster R-CNN over MobileNet, pictures of several sizes, then detection."""
import torch
from torchvision.models.detection import fasterrcnn_mobilenet_v3_large_fpn
torch.manual_seed(0)
model = fasterrcnn_mobilenet_v3_large_fpn(weights=None, weights_backbone=None, num_classes=11, min_size=320, max_size=512).cuda()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.002, momentum=0.9, weight_decay=1e-4)
for step in range(4):
    images, targets = [], []
    for i in range(4):
        corner = torch.rand(6, 2) * 150
        images.append(torch.rand(3, 300 + 20 * i, 400).cuda())
        targets.append({"boxes": torch.cat([corner, corner + 20 + torch.rand(6, 2) * 100], 1).cuda(), "labels": torch.randint(1, 11, (6,)).cuda()})
    loss = sum(model(images, targets).values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    model([torch.rand(3, 320, 400).cuda() for _ in range(2)])
