"""transformers' Deformable DETR without pretrained eyes: four scales, sampled points by grid_sample, its own matching and losses, rates by group,
pictures padded with masks."""
import torch
from transformers import DeformableDetrConfig, DeformableDetrForObjectDetection, ResNetConfig
torch.manual_seed(0)
config = DeformableDetrConfig(use_timm_backbone=False, use_pretrained_backbone=False, backbone=None, backbone_config=ResNetConfig(embedding_size=32, hidden_sizes=[64, 128, 256, 512], depths=[2, 2, 2, 2], layer_type="basic", out_features=["stage2", "stage3", "stage4"]),
                              d_model=192, encoder_layers=3, decoder_layers=3, encoder_ffn_dim=512, decoder_ffn_dim=512, num_queries=120, auxiliary_loss=True, num_labels=15, disable_custom_kernels=True)
model = DeformableDetrForObjectDetection(config).cuda()
eyes = [p for n, p in model.named_parameters() if "backbone" in n and p.requires_grad]
rest = [p for n, p in model.named_parameters() if "backbone" not in n and p.requires_grad]
optimizer = torch.optim.AdamW([{"params": eyes, "lr": 2e-5}, {"params": rest, "lr": 2e-4}], weight_decay=1e-4)
for step in range(4):
    h, w = [(320, 352), (288, 416), (352, 320), (320, 352)][step]
    mask = torch.ones(4, h, w, dtype=torch.long)
    mask[1, :, w - 40:] = 0
    labels = [{"class_labels": torch.randint(0, 15, (n,)).cuda(), "boxes": (torch.rand(n, 4) * 0.4 + 0.2).cuda()} for n in (3, 7, 1, 5)]
    out = model(pixel_values=torch.randn(4, 3, h, w).cuda(), pixel_mask=mask.cuda(), labels=labels)
    out.loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    print(out.loss.item())
