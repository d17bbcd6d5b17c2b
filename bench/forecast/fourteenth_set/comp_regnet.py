"""torch.compile on a RegNet of torchvision, channels-last, fp16 with a scaler, a compiled step of normalising on the card, SGD, evaluated by the compiled model as well."""
import torch
import torch.nn.functional as F
import torchvision

torch.manual_seed(0)
model = torchvision.models.regnet_y_400mf(weights=None, num_classes=200).cuda().to(memory_format=torch.channels_last)
compiled = torch.compile(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-5, nesterov=True)
scaler = torch.amp.GradScaler("cuda")
mean, std = torch.tensor([123.7, 116.3, 103.5], device="cuda").view(1, 3, 1, 1), torch.tensor([58.4, 57.1, 57.4], device="cuda").view(1, 3, 1, 1)


@torch.compile
def ready(x, flip):
    x = (x.float() - mean) / std
    return torch.where(flip[:, None, None, None], x.flip(3), x)


for step in range(5):
    x, y = torch.randint(0, 256, (48, 3, 160, 160), dtype=torch.uint8, device="cuda").to(memory_format=torch.channels_last), torch.randint(0, 200, (48,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(compiled(ready(x, torch.rand(48, device="cuda") < 0.5)), y, label_smoothing=0.1)
    optimizer.zero_grad(set_to_none=True)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
compiled.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    right = sum((compiled(ready(torch.randint(0, 256, (48, 3, 160, 160), dtype=torch.uint8, device="cuda"), torch.zeros(48, dtype=torch.bool, device="cuda"))).argmax(1) == y).sum().item() for _ in range(2))
print(loss.item(), right)
