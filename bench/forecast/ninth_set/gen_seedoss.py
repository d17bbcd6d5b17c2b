"""Seed-OSS generates from a static cache, its step compiled by generate itself, bf16; twice, so that the second answer has the graphs."""
import torch
from transformers import GenerationConfig, SeedOssConfig, SeedOssForCausalLM

torch.manual_seed(0)
with torch.device("cuda"):
    model = SeedOssForCausalLM(SeedOssConfig(vocab_size=32000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=6, num_attention_heads=16, num_key_value_heads=4, head_dim=64, pad_token_id=0, bos_token_id=1, eos_token_id=2)).to(torch.bfloat16).eval()
how = GenerationConfig(max_new_tokens=24, min_new_tokens=24, do_sample=False, cache_implementation="static", pad_token_id=0, eos_token_id=2)
ids = torch.randint(3, 32000, (4, 128), device="cuda")
for _ in range(2):
    print(model.generate(ids, attention_mask=torch.ones_like(ids), generation_config=how).shape)
