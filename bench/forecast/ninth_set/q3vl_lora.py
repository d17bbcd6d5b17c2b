"""Qwen 3 VL: LoRA on the language model, the vision tower frozen, two pictures in each text, bf16, checkpointed, a plain loop with a cosine rate."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration, get_cosine_schedule_with_warmup

torch.manual_seed(0)
config = Qwen3VLConfig(
    text_config=dict(vocab_size=32000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=8, head_dim=64, rope_parameters={"rope_type": "default", "mrope_section": [12, 10, 10], "rope_theta": 500000.0}, tie_word_embeddings=True),
    vision_config=dict(depth=8, hidden_size=768, intermediate_size=3072, num_heads=12, out_hidden_size=1024, deepstack_visual_indexes=[2, 4, 6], num_position_embeddings=2304),
    image_token_id=31000, video_token_id=31001, vision_start_token_id=31002, vision_end_token_id=31003, tie_word_embeddings=True)
with torch.device("cuda"):
    model = Qwen3VLForConditionalGeneration(config).to(torch.bfloat16)
model = get_peft_model(model, LoraConfig(r=16, lora_alpha=32, lora_dropout=0.05, target_modules=r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"))
model.enable_input_require_grads()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
schedule = get_cosine_schedule_with_warmup(optimizer, 2, 8)
grid = torch.tensor([[1, 24, 32]] * 4)
places = 24 * 32 // 4
for step in range(8):
    ids = torch.randint(5, 30000, (2, 900))
    for at in (20, 300):
        ids[:, at] = 31002
        ids[:, at + 1:at + 1 + places] = 31000
        ids[:, at + 1 + places] = 31003
    pixels = torch.randn(4 * 24 * 32, 3 * 2 * 16 * 16)
    kinds = (ids == 31000).long()
    loss = model(input_ids=ids.cuda(), attention_mask=torch.ones_like(ids).cuda(), mm_token_type_ids=kinds.cuda(), pixel_values=pixels.cuda().bfloat16(), image_grid_thw=grid.cuda(), labels=ids.masked_fill(ids >= 31000, -100).cuda()).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    optimizer.zero_grad()
    print(step, loss.item())
