"""Contrastive search by hand with a BioGPT: candidates, hidden states compared with all before, the cache of the best candidate chosen by index_select."""
import torch
from transformers import BioGptConfig, BioGptForCausalLM

torch.manual_seed(0)
model = BioGptForCausalLM(BioGptConfig(vocab_size=42000, hidden_size=1024, num_hidden_layers=12, num_attention_heads=16, intermediate_size=4096)).to("cuda", torch.bfloat16).eval()
K, B, alpha = 5, 6, 0.6
ids = torch.randint(3, 42000, (B, 384), device="cuda")
with torch.inference_mode():
    out = model(input_ids=ids, use_cache=True, output_hidden_states=True)
    cache, hidden, logits = out.past_key_values, out.hidden_states[-1], out.logits[:, -1]
    for turn in range(24):
        p, words = logits.softmax(-1).topk(K, dim=-1)
        cache.batch_repeat_interleave(K)
        out = model(input_ids=words.reshape(-1, 1), past_key_values=cache, use_cache=True, output_hidden_states=True, attention_mask=torch.ones(B * K, ids.shape[1] + 1, device="cuda", dtype=torch.long))
        new = out.hidden_states[-1][:, -1]
        before = hidden.repeat_interleave(K, 0)
        alike = torch.nn.functional.cosine_similarity(before, new[:, None], dim=-1).amax(1).view(B, K)
        best = ((1 - alpha) * p - alpha * alike).argmax(-1)
        rows = torch.arange(B, device="cuda") * K + best
        cache = out.past_key_values
        cache.batch_select_indices(rows)
        hidden = torch.cat([hidden, new[rows][:, None]], 1)
        ids = torch.cat([ids, words.gather(1, best[:, None])], 1)
        logits = out.logits[rows, -1]
print(ids.shape)
