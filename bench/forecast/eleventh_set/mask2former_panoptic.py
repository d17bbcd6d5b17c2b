"""Mask2Former on a small Swin: masks and classes matched on the host, bf16 autocast, AdamW, the backbone at a tenth of the rate."""
import torch
from transformers import Mask2FormerConfig, Mask2FormerForUniversalSegmentation, SwinConfig

torch.manual_seed(0)
back = SwinConfig(embed_dim=48, depths=[2, 2, 2, 2], num_heads=[2, 4, 8, 16], window_size=7, image_size=256, out_features=["stage1", "stage2", "stage3", "stage4"])
config = Mask2FormerConfig(backbone_config=back, hidden_dim=128, feature_size=128, mask_feature_size=128, encoder_layers=3, decoder_layers=4, num_attention_heads=4, num_queries=40, encoder_feedforward_dim=512, dim_feedforward=512, num_labels=20, train_num_points=2048)
model = Mask2FormerForUniversalSegmentation(config).cuda().train()
low = [p for n, p in model.named_parameters() if "pixel_level_module.encoder" in n]
high = [p for n, p in model.named_parameters() if "pixel_level_module.encoder" not in n]
optimizer = torch.optim.AdamW([{"params": low, "lr": 1e-5}, {"params": high, "lr": 1e-4}], weight_decay=0.05)
for step in range(4):
    pixels = torch.randn(3, 3, 256, 256, device="cuda")
    masks = [(torch.rand(n, 256, 256, device="cuda") > 0.7).float() for n in (5, 8, 3)]
    classes = [torch.randint(0, 20, (len(m),), device="cuda") for m in masks]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(pixel_values=pixels, mask_labels=masks, class_labels=classes).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
