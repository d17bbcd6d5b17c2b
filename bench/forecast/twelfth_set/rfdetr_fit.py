"""RF-DETR, found objects matched by the Hungarian method, a backbone with a lower rate, bf16 autocast, AdamW, an EMA, a detection at the end."""
import torch
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn
from transformers import RfDetrConfig, RfDetrForObjectDetection
from transformers.models.rf_detr.configuration_rf_detr import RfDetrDinov2Config

torch.manual_seed(0)
backbone = RfDetrDinov2Config(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, image_size=448, patch_size=14, num_windows=2, out_indices=[3, 6, 9, 12])
model = RfDetrForObjectDetection(RfDetrConfig(backbone_config=backbone, num_queries=100, group_detr=4, num_labels=20)).cuda().train()
ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
slow = [p for n, p in model.named_parameters() if "backbone" in n]
fast = [p for n, p in model.named_parameters() if "backbone" not in n]
optimizer = torch.optim.AdamW([{"params": slow, "lr": 1e-5}, {"params": fast, "lr": 1e-4}], weight_decay=1e-4)
for step in range(4):
    pictures = torch.randn(4, 3, 448, 448, device="cuda")
    labels = [{"class_labels": torch.randint(0, 20, (5,), device="cuda"), "boxes": torch.rand(5, 4, device="cuda") * 0.4 + 0.1} for _ in range(4)]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(pixel_values=pictures, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    ema.update_parameters(model)
model.eval()
with torch.no_grad():
    print(loss.item(), ema.module.eval()(pixel_values=pictures).logits.shape)
