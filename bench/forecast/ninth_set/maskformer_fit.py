"""MaskFormer on Swin: sets of masks matched on the host, FP32, poly rate, one image with many masks and one with few; semantic maps at the end."""
import torch
from transformers import MaskFormerConfig, MaskFormerForInstanceSegmentation, DetrConfig, SwinConfig

torch.manual_seed(0)
swin = SwinConfig(image_size=256, embed_dim=96, depths=[2, 2, 6, 2], num_heads=[3, 6, 12, 24], out_features=["stage1", "stage2", "stage3", "stage4"])
config = MaskFormerConfig(backbone_config=swin, decoder_config=DetrConfig(num_queries=60, d_model=256, decoder_layers=4), num_labels=30)
model = MaskFormerForInstanceSegmentation(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
schedule = torch.optim.lr_scheduler.PolynomialLR(optimizer, total_iters=10)
for step in range(5):
    pixels = torch.randn(6, 3, 256, 256, device="cuda")
    classes = [torch.randint(0, 30, (n,), device="cuda") for n in (3, 12, 5, 7, 2, 9)]
    masks = [(torch.rand(len(c), 256, 256, device="cuda") > 0.5).float() for c in classes]
    loss = model(pixel_values=pixels, class_labels=classes, mask_labels=masks).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.01)
    optimizer.step()
    schedule.step()
model.eval()
with torch.no_grad():
    out = model(pixel_values=pixels)
    classes = out.class_queries_logits.softmax(-1)[..., :-1]
    print(torch.einsum("bqc,bqhw->bchw", classes, out.masks_queries_logits.sigmoid()).argmax(1).shape)
