"""PI0, a robot's policy: pictures, words and states to 50 actions by flow matching, the part that sees frozen, bf16, then ten steps of sampled actions."""
import torch
from transformers import GemmaConfig, PaliGemmaConfig, PI0Config, PI0ForConditionalGeneration

torch.manual_seed(0)
words = dict(model_type="gemma", hidden_size=1024, num_hidden_layers=8, intermediate_size=4096, num_attention_heads=8, num_key_value_heads=1, head_dim=128, vocab_size=20000)
eyes = dict(model_type="siglip_vision_model", hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, patch_size=14, image_size=224, vision_use_head=False)
see = PaliGemmaConfig(text_config=words, vision_config=eyes, projection_dim=1024, image_token_id=19999)
act = GemmaConfig(hidden_size=512, num_hidden_layers=8, intermediate_size=2048, num_attention_heads=8, num_key_value_heads=1, head_dim=128, vocab_size=20000)
model = PI0ForConditionalGeneration(PI0Config(vlm_config=see, dit_config=act)).to("cuda", torch.bfloat16)
for name, p in model.named_parameters():
    p.requires_grad_("vision" not in name)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=2e-5)
ids = torch.randint(5, 19000, (6, 2 * 256 + 32), device="cuda")
ids[:, : 2 * 256] = 19999
mask = torch.ones_like(ids)
for step in range(4):
    batch = dict(state=torch.randn(6, 32, device="cuda", dtype=torch.bfloat16), pixel_values=torch.randn(6, 2, 3, 224, 224, device="cuda", dtype=torch.bfloat16), pixel_attention_mask=torch.ones(6, 2, dtype=torch.bool, device="cuda"),
                 input_ids=ids, attention_mask=mask)
    loss = model(**batch, actions=torch.randn(6, 50, 32, device="cuda", dtype=torch.bfloat16)).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
print(loss.item(), model.sample_actions(**batch).shape)
