"""V-JEPA 2 pretrained: a teacher that follows by EMA sees all of a film, the student what is left of it, a predictor fills in the rest, bf16, checkpointed."""
import copy
import torch
import torch.nn.functional as F
from transformers import VJEPA2Config, VJEPA2Model

torch.manual_seed(0)
config = VJEPA2Config(crop_size=224, frames_per_clip=16, hidden_size=768, num_attention_heads=12, num_hidden_layers=12, pred_hidden_size=384, pred_num_attention_heads=12, pred_num_hidden_layers=6)
model = VJEPA2Model(config).cuda().train()
model.gradient_checkpointing_enable()
teacher = copy.deepcopy(model.encoder).eval().requires_grad_(False)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.04, fused=True)
places = 8 * 14 * 14
for step in range(4):
    film = torch.randn(4, 16, 3, 224, 224, device="cuda")
    order = torch.stack([torch.randperm(places, device="cuda") for _ in range(4)])
    kept, hidden = order[:, : places // 4].sort(1)[0], order[:, places // 4 :].sort(1)[0]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        with torch.no_grad():
            told = F.layer_norm(teacher(film).last_hidden_state, (768,)).gather(1, hidden[..., None].expand(-1, -1, 768))
        out = model(pixel_values_videos=film, context_mask=[kept], target_mask=[hidden]).predictor_output.last_hidden_state
        loss = F.l1_loss(out, told)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    with torch.no_grad():
        for t, s in zip(teacher.parameters(), model.encoder.parameters()):
            t.mul_(0.998).add_(s, alpha=0.002)
print(loss.item())
