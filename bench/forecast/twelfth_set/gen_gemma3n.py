"""Gemma 3n of text generates: eight drawn answers each for four prompts, top-k and min-p, scores kept, then beams with a penalty, bf16."""
import torch
from transformers import Gemma3nForCausalLM, Gemma3nTextConfig

torch.manual_seed(0)
config = Gemma3nTextConfig(vocab_size=32000, vocab_size_per_layer_input=32000, hidden_size=1024, hidden_size_per_layer_input=128, intermediate_size=4096, num_hidden_layers=10, num_attention_heads=8, num_key_value_heads=2, head_dim=128, sliding_window=128,
                           num_kv_shared_layers=5, activation_sparsity_pattern=[0.0] * 10, eos_token_id=None, pad_token_id=0, laurel_rank=32)
model = Gemma3nForCausalLM(config).to("cuda", torch.bfloat16).eval()
ids = torch.randint(3, 32000, (4, 200), device="cuda")
mask = torch.ones_like(ids)
mask[0, :50] = 0
drawn = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=24, do_sample=True, top_k=40, min_p=0.05, num_return_sequences=8, return_dict_in_generate=True, output_scores=True)
beams = model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=16, num_beams=4, repetition_penalty=1.2, no_repeat_ngram_size=3)
print(drawn.sequences.shape, len(drawn.scores), beams.shape)
