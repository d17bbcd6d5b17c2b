"""Nemotron: a batch kept by a cache in four bits (HQQ), then one offloaded to the host, then lookups in the prompt; fp16."""
import torch
from transformers import NemotronConfig, NemotronForCausalLM

torch.manual_seed(0)
with torch.device("cuda"):
    model = NemotronForCausalLM(NemotronConfig(vocab_size=32000, hidden_size=1536, intermediate_size=6144, num_hidden_layers=12, num_attention_heads=12, num_key_value_heads=4, head_dim=128, pad_token_id=0, bos_token_id=1, eos_token_id=2)).half().eval()
ids = torch.randint(3, 32000, (6, 1200), device="cuda")
with torch.inference_mode():
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, min_new_tokens=32, do_sample=False, cache_implementation="quantized", cache_config={"backend": "hqq", "nbits": 4, "q_group_size": 64, "residual_length": 64, "axis_key": 1, "axis_value": 1})
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=16, min_new_tokens=16, do_sample=False, cache_implementation="offloaded")
    model.generate(ids[:1], attention_mask=torch.ones_like(ids[:1]), max_new_tokens=24, min_new_tokens=24, do_sample=False, prompt_lookup_num_tokens=4)
