"""torchvision: RetinaNet of ResNet-50, pictures of other sizes, frozen batch norms, focal loss, SGD with momentum, bf16 autocast, then boxes without gradients."""
import torch
from torchvision.models.detection import retinanet_resnet50_fpn_v2

torch.manual_seed(0)
model = retinanet_resnet50_fpn_v2(weights=None, weights_backbone=None, num_classes=21, min_size=480, max_size=800).cuda().train()
optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.01, momentum=0.9, weight_decay=1e-4, foreach=True)
for step in range(4):
    pictures = [torch.rand(3, 400 + 40 * i, 500 + 20 * step, device="cuda") for i in range(4)]
    corner = torch.rand(4, 8, 2, device="cuda") * 200
    targets = [{"boxes": torch.cat([c, c + 40 + 100 * torch.rand(8, 2, device="cuda")], 1), "labels": torch.randint(1, 21, (8,), device="cuda")} for c in corner]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        losses = model(pictures, targets)
        loss = sum(losses.values())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    found = model(pictures)
print(loss.item(), len(found))
