"""BLIP-2's second stage: the Q-Former and the projection learn between a frozen ViT in bf16 and a frozen OPT, by autocast."""
import torch
from transformers import Blip2Config, Blip2ForConditionalGeneration

torch.manual_seed(0)
config = Blip2Config(vision_config=dict(hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, image_size=224, patch_size=14), qformer_config=dict(hidden_size=512, num_hidden_layers=8, num_attention_heads=8, intermediate_size=2048, encoder_hidden_size=768, vocab_size=8000),
                     text_config=dict(model_type="opt", vocab_size=16000, hidden_size=1024, word_embed_proj_dim=1024, ffn_dim=4096, num_hidden_layers=12, num_attention_heads=16), num_query_tokens=32, image_token_index=15999)
with torch.device("cuda"):
    model = Blip2ForConditionalGeneration(config)
for part in (model.vision_model, model.language_model):
    part.requires_grad_(False).eval().to(torch.bfloat16)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, weight_decay=0.05)
for step in range(5):
    ids = torch.randint(4, 15000, (16, 32 + 40), device="cuda")
    ids[:, :32] = 15999
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(pixel_values=torch.randn(16, 3, 224, 224, device="cuda"), input_ids=ids, attention_mask=torch.ones_like(ids), labels=ids.masked_fill(ids == 15999, -100)).loss
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
