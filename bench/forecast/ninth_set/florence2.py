"""Florence-2: DaViT and a BART decoder answer tasks about pictures of 384 x 384; bf16 by autocast, AdamW, six pictures, three beams at the end."""
import torch
from transformers import Florence2Config, Florence2ForConditionalGeneration

torch.manual_seed(0)
config = Florence2Config(text_config=dict(model_type="bart", vocab_size=20000, d_model=768, encoder_layers=6, decoder_layers=6, encoder_attention_heads=12, decoder_attention_heads=12, encoder_ffn_dim=3072, decoder_ffn_dim=3072, max_position_embeddings=1024, forced_eos_token_id=None),
                         vision_config=dict(projection_dim=768), image_token_id=19999)
model = Florence2ForConditionalGeneration(config).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6)
with torch.no_grad():
    probe = model.get_image_features(torch.zeros(1, 3, 384, 384, device="cuda"))
places = (probe.pooler_output if hasattr(probe, "pooler_output") else probe).shape[-2]
for step in range(5):
    ids = torch.randint(5, 19000, (6, places + 16), device="cuda")
    ids[:, :places] = 19999
    labels = torch.randint(5, 19000, (6, 64), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=torch.randn(6, 3, 384, 384, device="cuda"), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
    model.generate(input_ids=ids[:2], attention_mask=torch.ones_like(ids[:2]), pixel_values=torch.randn(2, 3, 384, 384, device="cuda"), num_beams=3, max_new_tokens=24, min_new_tokens=24, do_sample=False)
