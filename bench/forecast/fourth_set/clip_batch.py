"""CLIP with a large batch: pictures and words, logits over all pairs, the scale learned and clamped, bf16."""
import torch
from transformers import CLIPConfig, CLIPModel
torch.manual_seed(0)
config = CLIPConfig(text_config=dict(vocab_size=6000, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4, eos_token_id=5999, bos_token_id=5998, pad_token_id=1),
                    vision_config=dict(hidden_size=256, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=4, image_size=128, patch_size=16), projection_dim=256)
model = CLIPModel(config).cuda()
wd, free = [p for p in model.parameters() if p.ndim > 1], [p for p in model.parameters() if p.ndim <= 1]
optimizer = torch.optim.AdamW([{"params": wd, "weight_decay": 0.2}, {"params": free, "weight_decay": 0.0}], lr=5e-4, betas=(0.9, 0.98))
for step in range(4):
    ids = torch.randint(2, 5990, (512, 32), device="cuda")
    ids[:, -1] = 5999
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, pixel_values=torch.randn(512, 3, 128, 128, device="cuda"), return_loss=True).loss
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        model.logit_scale.clamp_(0, 4.6052)
