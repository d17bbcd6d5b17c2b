"""timm: CoAtNet's blocks in bf16 weights with stochastic depth, AdamW of timm with caution."""
import timm
import timm.optim
import timm.utils
import torch
torch.manual_seed(0)
model = timm.create_model("coatnet_nano_rw_224", num_classes=40, drop_path_rate=0.2).to("cuda", torch.bfloat16)
optimizer = timm.optim.create_optimizer_v2(model, opt="cadamw", lr=1e-3)
for step in range(4):
    images, labels = torch.randn(24, 3, 224, 224, device="cuda", dtype=torch.bfloat16), torch.randint(0, 40, (24,), device="cuda")
    torch.nn.functional.cross_entropy(model(images), labels).backward()
    optimizer.step()
    optimizer.zero_grad()
