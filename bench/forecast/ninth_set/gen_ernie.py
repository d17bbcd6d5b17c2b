"""ERNIE 4.5 is helped by a small model of its own words, then samples three answers a prompt with hidden states returned; bf16."""
import torch
from transformers import Ernie4_5Config, Ernie4_5ForCausalLM

torch.manual_seed(0)
make = lambda **k: Ernie4_5ForCausalLM(Ernie4_5Config(vocab_size=32000, pad_token_id=0, bos_token_id=1, eos_token_id=2, **k)).to(torch.bfloat16).eval()
with torch.device("cuda"):
    large = make(hidden_size=2048, intermediate_size=5632, num_hidden_layers=16, num_attention_heads=16, num_key_value_heads=2, head_dim=128)
    small = make(hidden_size=512, intermediate_size=1536, num_hidden_layers=4, num_attention_heads=8, num_key_value_heads=2, head_dim=64)
ids = torch.randint(3, 32000, (1, 600), device="cuda")
with torch.no_grad():
    large.generate(ids, attention_mask=torch.ones_like(ids), assistant_model=small, max_new_tokens=48, min_new_tokens=48, do_sample=False)
    many = torch.randint(3, 32000, (4, 400), device="cuda")
    out = large.generate(many, attention_mask=torch.ones_like(many), do_sample=True, top_k=50, num_return_sequences=3, max_new_tokens=24, min_new_tokens=24, return_dict_in_generate=True, output_hidden_states=True, repetition_penalty=1.1)
print(len(out.hidden_states))
