"""Answers with a long prompt that is read once: its cache is copied for each question (copy.deepcopy), a chat of four turns keeps its cache and is cut back; a Qwen 2."""
import copy
import torch
from transformers import DynamicCache, Qwen2Config, Qwen2ForCausalLM

torch.manual_seed(0)
config = Qwen2Config(vocab_size=20000, hidden_size=1280, intermediate_size=4352, num_hidden_layers=12, num_attention_heads=20, num_key_value_heads=4, pad_token_id=0, eos_token_id=1, bos_token_id=2, use_sliding_window=False)
model = Qwen2ForCausalLM(config).to(torch.bfloat16).cuda().eval()
words = lambda *shape: torch.randint(3, 20000, shape, device="cuda")
prompt = words(1, 3000)
with torch.inference_mode():
    kept = DynamicCache(config=config)
    kept = model(prompt, past_key_values=kept, logits_to_keep=1).past_key_values
    for n in (20, 45, 70, 30):
        asked = torch.cat([prompt, words(1, n)], 1)
        said = model.generate(asked, past_key_values=copy.deepcopy(kept), max_new_tokens=24, min_new_tokens=24, do_sample=False)
        print(said.shape)
    cache, talk = DynamicCache(config=config), words(1, 60)
    for turn in range(4):
        said = model.generate(talk, past_key_values=cache, max_new_tokens=32, min_new_tokens=32, do_sample=True, temperature=0.7, repetition_penalty=1.1)
        talk = torch.cat([said, words(1, 25)], 1)
    cache.crop(200)
    again = model.generate(talk[:, :240], past_key_values=cache, max_new_tokens=20, min_new_tokens=20, do_sample=False)
    many = copy.deepcopy(kept)
    many.batch_repeat_interleave(8)
    out = model(words(8, 16), past_key_values=many, logits_to_keep=1)
    scores = out.logits[:, -1].float().log_softmax(-1)
print(again.shape, scores.max(-1).values.tolist())
