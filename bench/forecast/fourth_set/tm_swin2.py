"""timm: Swin V2, bf16 by autocast, checkpointed."""
import timm
import timm.optim
import timm.utils
import torch
torch.manual_seed(0)
model = timm.create_model("swinv2_tiny_window8_256", num_classes=100).cuda()
model.set_grad_checkpointing(True)
optimizer = timm.optim.create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05, layer_decay=0.75)
for step in range(4):
    images, labels = torch.randn(24, 3, 256, 256, device="cuda"), torch.randint(0, 100, (24,), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = torch.nn.functional.cross_entropy(model(images), labels, label_smoothing=0.1)
    loss.backward()
    timm.utils.dispatch_clip_grad(model.parameters(), 1.0, mode="norm")
    optimizer.step()
    optimizer.zero_grad()
