"""Mllama: tiles of pictures by cross attention, bf16 autocast, the vision model frozen, AdamW in groups of two rates."""
import torch
from transformers import MllamaConfig, MllamaForConditionalGeneration

torch.manual_seed(0)
config = MllamaConfig(vision_config={"hidden_size": 256, "num_hidden_layers": 6, "num_global_layers": 2, "attention_heads": 8, "intermediate_size": 1024, "vision_output_dim": 768, "image_size": 224, "patch_size": 14, "max_num_tiles": 2, "intermediate_layers_indices": [1, 3],
                                     "supported_aspect_ratios": [[1, 1], [1, 2], [2, 1]]},
                      text_config={"vocab_size": 16000, "hidden_size": 768, "intermediate_size": 2048, "num_hidden_layers": 8, "num_attention_heads": 12, "num_key_value_heads": 4, "cross_attention_layers": [2, 5], "pad_token_id": 0, "max_position_embeddings": 4096}, image_token_index=15999)
model = MllamaForConditionalGeneration(config).cuda().train()
model.model.vision_model.requires_grad_(False)
slow = [p for n, p in model.named_parameters() if p.requires_grad and "cross_attn" not in n]
fast = [p for n, p in model.named_parameters() if p.requires_grad and "cross_attn" in n]
optimizer = torch.optim.AdamW([{"params": slow, "lr": 1e-5}, {"params": fast, "lr": 1e-4}])
for step in range(4):
    ids = torch.randint(1, 15000, (2, 384), device="cuda")
    ids[:, 0] = 15999
    pixels = torch.rand(2, 1, 2, 3, 224, 224, device="cuda")
    ratio = torch.tensor([[2], [3]], device="cuda")
    tiles = torch.ones(2, 1, 2, dtype=torch.long, device="cuda")
    seen = torch.ones(2, 384, 1, 2, dtype=torch.long, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), pixel_values=pixels, aspect_ratio_ids=ratio, aspect_ratio_mask=tiles, cross_attention_mask=seen, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
