"""Phi MoE generates in bf16: padded prompts of many lengths, sampled with a dynamic cache, then by three beams, with scores."""
import torch
from transformers import PhimoeConfig, PhimoeForCausalLM

torch.manual_seed(0)
config = PhimoeConfig(vocab_size=32064, hidden_size=1024, intermediate_size=1792, num_hidden_layers=12, num_attention_heads=16, num_key_value_heads=4, num_local_experts=8, num_experts_per_tok=2, pad_token_id=0, bos_token_id=1, eos_token_id=2, sliding_window=None)
with torch.device("cuda"):
    model = PhimoeForCausalLM(config).bfloat16().eval()
lengths = [700, 512, 333, 100, 640, 480, 20, 290]
ids = torch.zeros(8, 700, dtype=torch.long)
for row, n in zip(ids, lengths):
    row[-n:] = torch.randint(3, 32064, (n,))
ids = ids.cuda()
mask = ids.ne(0).long()
with torch.inference_mode():
    a = model.generate(ids, attention_mask=mask, max_new_tokens=48, min_new_tokens=48, do_sample=True, temperature=0.8, top_p=0.9)
    b = model.generate(ids[:4], attention_mask=mask[:4], max_new_tokens=24, min_new_tokens=24, num_beams=3, do_sample=False, return_dict_in_generate=True, output_scores=True)
print(a.shape, b.sequences.shape, len(b.scores))
