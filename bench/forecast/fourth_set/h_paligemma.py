"""PaliGemma made small: its eyes frozen, its words trained in bf16."""
import torch
from transformers import GemmaConfig, PaliGemmaConfig, PaliGemmaForConditionalGeneration, SiglipVisionConfig
torch.manual_seed(0)
text = GemmaConfig(vocab_size=8000, hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=1, head_dim=64)
vision = SiglipVisionConfig(hidden_size=384, intermediate_size=1536, num_hidden_layers=6, num_attention_heads=6, image_size=224, patch_size=14, projection_dim=512,
                            vision_use_head=False)
config = PaliGemmaConfig(vision_config=vision.to_dict(), text_config=text.to_dict(), image_token_index=7999, image_token_id=7999, projection_dim=512, hidden_size=512)
model = PaliGemmaForConditionalGeneration(config).to("cuda", torch.bfloat16)
for name, p in model.named_parameters():
    p.requires_grad_("vision_tower" not in name)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
for step in range(4):
    ids = torch.randint(3, 7900, (4, 256 + 64))
    ids[:, :256] = 7999
    labels = ids.clone()
    labels[:, :280] = -100
    kinds = torch.zeros_like(ids)
    kinds[:, 280:] = 1
    images = torch.randn(4, 3, 224, 224, device="cuda", dtype=torch.bfloat16)
    loss = model(input_ids=ids.cuda(), pixel_values=images, attention_mask=torch.ones_like(ids).cuda(), token_type_ids=kinds.cuda(), labels=labels.cuda()).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
