"""Ministral 3 generates with a static cache (no compiled steps), with an offloaded one, then by lookup of the prompt's own words; weights in fp16."""
import torch
from transformers import Ministral3Config, Ministral3ForCausalLM

torch.manual_seed(0)
config = Ministral3Config(vocab_size=48000, hidden_size=2048, intermediate_size=7168, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, head_dim=128, sliding_window=None, eos_token_id=None, bos_token_id=1, pad_token_id=0)
model = Ministral3ForCausalLM(config).to("cuda", torch.float16).eval()
ids = torch.randint(3, 48000, (8, 700), device="cuda")
with torch.inference_mode():
    a = model.generate(input_ids=ids, max_new_tokens=32, do_sample=False, cache_implementation="static", disable_compile=True)
    b = model.generate(input_ids=ids, max_new_tokens=12, do_sample=False, cache_implementation="offloaded")
    c = model.generate(input_ids=ids[:1].repeat(1, 2), max_new_tokens=40, do_sample=False, prompt_lookup_num_tokens=6)
print(a.shape, b.shape, c.shape)
