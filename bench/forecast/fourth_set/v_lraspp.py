"""torchvision: LR-ASPP segments, pictures augmented on the card, confusion counted by bincount."""
import torch
from torchvision.models.segmentation import lraspp_mobilenet_v3_large
from torchvision.transforms import v2
torch.manual_seed(0)
model = lraspp_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=12).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
augment = v2.Compose([v2.RandomHorizontalFlip(0.5), v2.ColorJitter(0.2, 0.2), v2.Normalize([0.5] * 3, [0.2] * 3)])
for step in range(5):
    images = augment(torch.rand(12, 3, 320, 320, device="cuda"))
    labels = torch.randint(0, 12, (12, 320, 320), device="cuda")
    out = model(images)["out"]
    loss = torch.nn.functional.cross_entropy(out, labels, ignore_index=255)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        torch.bincount((labels * 12 + out.argmax(1)).flatten(), minlength=144).view(12, 12)
