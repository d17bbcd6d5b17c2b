"""timm: a network without norms, adaptive clipping, Nesterov's SGD, FP32."""
import timm
import timm.optim
import timm.utils
import torch
torch.manual_seed(0)
model = timm.create_model("nfnet_l0", num_classes=50).cuda()
optimizer = timm.optim.create_optimizer_v2(model, opt="nesterov", lr=0.1, momentum=0.9)
for step in range(4):
    images, labels = torch.randn(16, 3, 192, 192, device="cuda"), torch.randint(0, 50, (16,), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad()
    loss.backward()
    timm.utils.adaptive_clip_grad(model.parameters(), 0.01)
    optimizer.step()
