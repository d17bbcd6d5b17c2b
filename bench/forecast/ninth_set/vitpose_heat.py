"""ViTPose: heat maps of 17 joints by a mean square error over visible ones, fp16 with a scaler, checkpointed, flipped tests at the end."""
import torch
from transformers import VitPoseBackboneConfig, VitPoseConfig, VitPoseForPoseEstimation

torch.manual_seed(0)
back = VitPoseBackboneConfig(image_size=[256, 192], patch_size=[16, 16], hidden_size=768, num_hidden_layers=12, num_attention_heads=12, out_features=["stage12"])
model = VitPoseForPoseEstimation(VitPoseConfig(backbone_config=back, num_labels=17, use_simple_decoder=False)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(6):
    pixels = torch.randn(48, 3, 256, 192).pin_memory().cuda(non_blocking=True)
    target = torch.rand(48, 17, 64, 48, device="cuda")
    seen = (torch.rand(48, 17, 1, 1, device="cuda") > 0.2).float()
    with torch.autocast("cuda", dtype=torch.float16):
        maps = model(pixel_values=pixels).heatmaps
    loss = ((maps.float() - target) ** 2 * seen).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
model.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    a = model(pixel_values=pixels).heatmaps
    b = model(pixel_values=pixels.flip(-1)).heatmaps.flip(-1)
    peak = ((a + b) / 2).flatten(2).argmax(-1)
print(peak.shape)
