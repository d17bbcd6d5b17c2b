"""timm: MobileViT in fp16 with a scaler, pictures of several sizes."""
import timm
import torch
torch.manual_seed(0)
model = timm.create_model("mobilevit_xs", num_classes=40).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)
scaler = torch.amp.GradScaler()
for step in range(6):
    side = (192, 256, 224)[step % 3]
    images, labels = torch.randn(24, 3, side, side, device="cuda"), torch.randint(0, 40, (24,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
