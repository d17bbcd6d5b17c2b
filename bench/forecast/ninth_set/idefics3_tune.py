"""Idefics 3 is tuned on tiles of pictures with answers: bf16 weights, the vision model frozen, some tiles padding, AdamW, accumulated by two."""
import torch
from transformers import Idefics3Config, Idefics3ForConditionalGeneration

torch.manual_seed(0)
config = Idefics3Config(text_config=dict(model_type="llama", vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=10, num_attention_heads=16, num_key_value_heads=4, pad_token_id=0), vision_config=dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, image_size=364, patch_size=14), scale_factor=2, image_token_id=31990, pad_token_id=0)
with torch.device("cuda"):
    model = Idefics3ForConditionalGeneration(config).bfloat16()
for p in model.model.vision_model.parameters():
    p.requires_grad_(False)
places = (364 // 14) ** 2 // 4
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=1e-5, foreach=True)
for step in range(6):
    ids = torch.randint(1, 31000, (2, 5 * places + 120))
    ids[:, 10:10 + 5 * places] = 31990
    pixels = torch.rand(2, 5, 3, 364, 364)
    seen = torch.ones(2, 5, 364, 364, dtype=torch.bool)
    seen[:, -1, :, 200:] = False
    labels = ids.masked_fill(ids == 31990, -100)
    out = model(input_ids=ids.cuda(), attention_mask=torch.ones_like(ids).cuda(), pixel_values=pixels.to("cuda", torch.bfloat16), pixel_attention_mask=seen.cuda(), labels=labels.cuda(), use_cache=False)
    (out.loss / 2).backward()
    if step % 2:
        optimizer.step()
        optimizer.zero_grad()
