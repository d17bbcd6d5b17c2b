"""bitsandbytes: weights in nf4 with double quantisation, words are generated."""
import tempfile
import torch
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, MistralConfig, MistralForCausalLM
torch.manual_seed(0)
folder = tempfile.mkdtemp()
MistralForCausalLM(MistralConfig(vocab_size=8000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16,
                                 num_key_value_heads=4)).to(torch.bfloat16).save_pretrained(folder)
quantised = BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True, bnb_4bit_compute_dtype=torch.bfloat16)
model = AutoModelForCausalLM.from_pretrained(folder, quantization_config=quantised, device_map={"": 0})
ids = torch.randint(3, 8000, (4, 256), device="cuda")
for _ in range(2):
    model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, min_new_tokens=32, do_sample=False, pad_token_id=0)
