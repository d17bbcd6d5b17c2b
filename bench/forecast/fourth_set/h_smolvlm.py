"""SmolVLM made small: pictures become a few words, the model answers."""
import torch
from transformers import SmolVLMConfig, SmolVLMForConditionalGeneration
torch.manual_seed(0)
config = SmolVLMConfig(image_token_id=5999, scale_factor=4, pad_token_id=0,
                       vision_config=dict(hidden_size=384, intermediate_size=1024, num_hidden_layers=6, num_attention_heads=6, image_size=256, patch_size=16),
                       text_config=dict(model_type="llama", vocab_size=6000, hidden_size=512, intermediate_size=1408, num_hidden_layers=6, num_attention_heads=8,
                                        num_key_value_heads=4, pad_token_id=0))
model = SmolVLMForConditionalGeneration(config).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5)
def batch(n):
    ids = torch.randint(3, 5900, (n, 32 + 96))
    ids[:, :32] = 5999
    images = torch.randn(n, 2, 3, 256, 256)
    return dict(input_ids=ids.cuda(), attention_mask=torch.ones_like(ids).cuda(), pixel_values=images.to("cuda", torch.bfloat16))
for step in range(4):
    rows = batch(6)
    loss = model(**rows, labels=rows["input_ids"]).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval().generate(**batch(2), max_new_tokens=16, min_new_tokens=16, do_sample=False)
