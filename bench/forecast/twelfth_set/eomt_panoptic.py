"""EoMT: a ViT that finds masks itself, Hungarian matching with drawn points, decayed rates by layer, fp16 with a scaler, masks annealed by probability."""
import torch
from transformers import EomtConfig, EomtForUniversalSegmentation

torch.manual_seed(0)
labels = {i: str(i) for i in range(30)}
model = EomtForUniversalSegmentation(EomtConfig(hidden_size=384, num_hidden_layers=10, num_attention_heads=6, image_size=384, num_queries=60, num_blocks=3, train_num_points=4096, id2label=labels, label2id={v: k for k, v in labels.items()})).cuda().train()
groups = {}
for name, p in model.named_parameters():
    depth = int(name.split(".")[1]) if name.startswith("layers.") else 10
    groups.setdefault(depth, []).append(p)
optimizer = torch.optim.AdamW([{"params": ps, "lr": 1e-4 * 0.8 ** (10 - d)} for d, ps in groups.items()], weight_decay=0.05)
scaler = torch.amp.GradScaler("cuda", init_scale=1024)
for step in range(4):
    model.attn_mask_probs.fill_(1 - step / 4)
    pictures = torch.rand(6, 3, 384, 384, device="cuda")
    masks = [(torch.rand(6, 384, 384, device="cuda") > 0.7).float() for _ in range(6)]
    kinds = [torch.randint(0, 30, (6,), device="cuda") for _ in range(6)]
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(pixel_values=pictures, mask_labels=masks, class_labels=kinds).loss
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(loss.item())
