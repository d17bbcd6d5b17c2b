"""RT-DETR: denoised queries beside learned ones, matched on the host, a rate of its own for the backbone, bf16 autocast, AdamW, boxes above a threshold at the end."""
import torch
from transformers import RTDetrConfig, RTDetrForObjectDetection, RTDetrImageProcessor, RTDetrResNetConfig

torch.manual_seed(0)
backbone = RTDetrResNetConfig(embedding_size=64, hidden_sizes=[256, 512, 1024, 2048], depths=[2, 2, 2, 2], layer_type="bottleneck", out_features=["stage2", "stage3", "stage4"])
model = RTDetrForObjectDetection(RTDetrConfig(backbone_config=backbone, num_queries=200, decoder_layers=3, num_labels=30, num_denoising=60)).cuda()
groups = [{"params": [p for n, p in model.named_parameters() if "backbone" not in n]}, {"params": [p for n, p in model.named_parameters() if "backbone" in n and p.requires_grad], "lr": 1e-5}]
optimizer = torch.optim.AdamW(groups, lr=1e-4, weight_decay=1e-4)
model.train()
for step in range(4):
    labels = [{"class_labels": torch.randint(0, 30, (n,), device="cuda"), "boxes": torch.rand(n, 4, device="cuda") * 0.4 + 0.1} for n in torch.randint(2, 12, (8,)).tolist()]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(pixel_values=torch.randn(8, 3, 512, 512, device="cuda"), labels=labels).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
model.eval()
with torch.no_grad():
    out = model(pixel_values=torch.randn(4, 3, 512, 512, device="cuda"))
    found = RTDetrImageProcessor().post_process_object_detection(out, threshold=0.5, target_sizes=[(512, 512)] * 4)
print(loss.item(), [len(f["scores"]) for f in found])
