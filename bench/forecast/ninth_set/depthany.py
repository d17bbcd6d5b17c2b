"""Depth Anything: DINOv2 with a DPT head, scale-invariant loss, two rates, accumulated to an effective 16 by autocast in bf16; validation at a larger size."""
import torch
from transformers import DepthAnythingConfig, DepthAnythingForDepthEstimation, Dinov2Config

torch.manual_seed(0)
back = Dinov2Config(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=252, patch_size=14, out_features=["stage3", "stage6", "stage9", "stage12"], reshape_hidden_states=False, apply_layernorm=True)
model = DepthAnythingForDepthEstimation(DepthAnythingConfig(backbone_config=back, reassemble_hidden_size=384, neck_hidden_sizes=[48, 96, 192, 384], fusion_hidden_size=64)).cuda()
optimizer = torch.optim.AdamW([{"params": model.backbone.parameters(), "lr": 5e-6}, {"params": [p for n, p in model.named_parameters() if not n.startswith("backbone")], "lr": 5e-5}])
for step in range(8):
    pixels, depth = torch.rand(8, 3, 252, 336, device="cuda"), torch.rand(8, 252, 336, device="cuda") * 9 + 1
    valid = depth > 1.2
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(pixel_values=pixels).predicted_depth
    d = torch.where(valid, (out.float().clamp(min=1e-3)).log() - depth.log(), torch.zeros_like(depth))
    n = valid.sum()
    loss = ((d ** 2).sum() / n - 0.5 * (d.sum() / n) ** 2).clamp(min=1e-8).sqrt()
    (loss / 2).backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
model.eval()
with torch.inference_mode():
    for _ in range(2):
        model(pixel_values=torch.rand(4, 3, 364, 490, device="cuda"))
