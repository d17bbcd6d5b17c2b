"""Qwen 2.5-VL made small: pictures of three sizes, attention in windows, LoRA by peft in the words alone, checkpointed; then an answer is written."""
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration
torch.manual_seed(0)
config = Qwen2_5_VLConfig(text_config=dict(vocab_size=15101, hidden_size=512, intermediate_size=1400, num_hidden_layers=6, num_attention_heads=8, num_key_value_heads=2, pad_token_id=0, bos_token_id=None,
                                           eos_token_id=None, rope_parameters={"rope_type": "default", "rope_theta": 1e6, "mrope_section": [8, 12, 12]}),
                          vision_config=dict(depth=5, hidden_size=320, intermediate_size=900, num_heads=5, out_hidden_size=512, fullatt_block_indexes=[2], window_size=112),
                          image_token_id=15090, video_token_id=15091, vision_start_token_id=15092, vision_end_token_id=15093)
model = Qwen2_5_VLForConditionalGeneration(config).to(torch.bfloat16)
model.gradient_checkpointing_enable()
model.enable_input_require_grads()
model = get_peft_model(model, LoraConfig(r=8, target_modules=r".*language_model.*(q_proj|v_proj|down_proj)")).cuda()
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), 1e-4)
grid = torch.tensor([[1, 34, 46], [1, 20, 62], [1, 38, 38]])
for _ in range(4):
    rows = []
    for t, h, w in grid.tolist():
        picture = [15092, *[15090] * (t * h * w // 4), 15093]
        rows.append(torch.tensor([*torch.randint(1, 15000, (31,)).tolist(), *picture, *torch.randint(1, 15000, (560 - len(picture),)).tolist()]))
    ids = torch.stack(rows).cuda()
    pixels = torch.randn(int(grid.prod(1).sum()), 1176, dtype=torch.bfloat16).cuda()
    types = (ids == 15090).int()
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, image_grid_thw=grid.cuda(), mm_token_type_ids=types, labels=ids.masked_fill(ids >= 15090, -100)).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
model.eval()
with torch.no_grad():
    print(model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, image_grid_thw=grid.cuda(), mm_token_type_ids=types, max_new_tokens=9, do_sample=False).shape)
