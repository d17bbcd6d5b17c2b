"""InternVL: pictures in front of words, the vision tower frozen, LoRA with DoRA in the language model, bf16 weights, two batches a step."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import InternVLConfig, InternVLForConditionalGeneration

torch.manual_seed(0)
config = InternVLConfig(vision_config={"hidden_size": 384, "num_hidden_layers": 8, "num_attention_heads": 6, "intermediate_size": 1536, "image_size": [224, 224], "patch_size": [14, 14]},
                        text_config={"model_type": "qwen2", "vocab_size": 16000, "hidden_size": 768, "intermediate_size": 2304, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 4}, image_token_id=15999, image_seq_length=64)
model = InternVLForConditionalGeneration(config).to("cuda", torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, use_dora=True, target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj)"))
model.train()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
for step in range(5):
    for part in range(2):
        ids = torch.randint(0, 15000, (4, 320))
        ids[:, 8:72] = 15999
        labels = ids.clone()
        labels[:, :160] = -100
        pixels = torch.rand(4, 3, 224, 224, dtype=torch.bfloat16)
        out = model(input_ids=ids.cuda(), pixel_values=pixels.cuda(), attention_mask=torch.ones_like(ids).cuda(), labels=labels.cuda())
        (out.loss / 2).backward()
    optimizer.step()
    optimizer.zero_grad()
print(out.loss.item())
