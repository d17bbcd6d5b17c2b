"""torchvision: DeepLabV3 with its helper head, the hardest pixels alone (OHEM), polynomial rates, fp16 with a scaler, pictures of two sizes, a confusion matrix."""
import torch
import torch.nn.functional as F
from torchvision.models.segmentation import deeplabv3_resnet50

torch.manual_seed(0)
model = deeplabv3_resnet50(weights=None, weights_backbone=None, num_classes=19, aux_loss=True).cuda()
optimizer = torch.optim.SGD([{"params": model.backbone.parameters(), "lr": 1e-3}, {"params": [*model.classifier.parameters(), *model.aux_classifier.parameters()], "lr": 1e-2}], momentum=0.9, weight_decay=5e-4)
schedule, scaler = torch.optim.lr_scheduler.PolynomialLR(optimizer, 10, 0.9), torch.amp.GradScaler("cuda")


def ohem(scores, labels, threshold=0.7, least=20000):
    each = F.cross_entropy(scores, labels, ignore_index=255, reduction="none").flatten()
    hard = each[each > -torch.log(torch.tensor(threshold, device=each.device))]
    if hard.numel() < least:
        hard = each.topk(least).values
    return hard.mean()


for step, side in enumerate((320, 320, 384, 320)):
    x, y = torch.randn(6, 3, side, side, device="cuda"), torch.randint(0, 19, (6, side, side), device="cuda")
    y[torch.rand_like(y, dtype=torch.float) < 0.05] = 255
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(x)
        loss = ohem(out["out"], y) + 0.4 * ohem(out["aux"], y)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    schedule.step()
model.eval()
matrix = torch.zeros(19, 19, dtype=torch.long, device="cuda")
with torch.inference_mode():
    for _ in range(2):
        x, y = torch.randn(4, 3, 512, 512, device="cuda"), torch.randint(0, 19, (4, 512, 512), device="cuda")
        said = model(x)["out"].argmax(1)
        matrix += torch.bincount(19 * y.flatten() + said.flatten(), minlength=361).reshape(19, 19)
print(loss.item(), (matrix.diag() / (matrix.sum(0) + matrix.sum(1) - matrix.diag())).mean().item())
