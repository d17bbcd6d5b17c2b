"""LLaVA NeXT answers questions to pictures of two sizes, left padded, greedy, bf16; then once more with a static cache."""
import torch
from transformers import LlavaNextConfig, LlavaNextForConditionalGeneration
from transformers.models.llava_next.modeling_llava_next import image_size_to_num_patches

torch.manual_seed(0)
grids = [[336, 672], [672, 336], [672, 672], [1008, 336], [336, 1008]]
config = LlavaNextConfig(text_config=dict(model_type="mistral", vocab_size=32064, hidden_size=1536, intermediate_size=4096, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, sliding_window=None, pad_token_id=0, eos_token_id=2),
                         vision_config=dict(model_type="clip_vision_model", hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, image_size=336, patch_size=14, projection_dim=512), image_token_index=32000, image_grid_pinpoints=grids, vision_feature_layer=-2)
with torch.device("cuda"):
    model = LlavaNextForConditionalGeneration(config).to(torch.bfloat16).eval()
sizes = torch.tensor([[600, 640], [400, 660]])
tiles = [image_size_to_num_patches(s, grids, 336) for s in sizes]
most = max(tiles)
pixels = torch.zeros(2, most, 3, 336, 336)
for i, n in enumerate(tiles):
    pixels[i, :n] = torch.randn(n, 3, 336, 336)
with torch.inference_mode():
    features = model.get_image_features(pixel_values=pixels.to("cuda", torch.bfloat16), image_sizes=sizes.cuda(), vision_feature_layer=-2, vision_feature_select_strategy="default")
    features = features.pooler_output if hasattr(features, "pooler_output") else features
    counts = [len(f) for f in features]
    del features
    rows = [torch.cat([torch.randint(5, 30000, (6,)), torch.full((n,), 32000), torch.randint(5, 30000, (40,))]) for n in counts]
    longest = max(map(len, rows))
    ids = torch.stack([torch.nn.functional.pad(r, (longest - len(r), 0)) for r in rows]).cuda()
    inputs = dict(input_ids=ids, attention_mask=ids.ne(0).long(), pixel_values=pixels.to("cuda", torch.bfloat16), image_sizes=sizes.cuda(), do_sample=False, max_new_tokens=40, min_new_tokens=40)
    print(model.generate(**inputs).shape)
    print(model.generate(**inputs, cache_implementation="static", disable_compile=True).shape)
