"""Speculative decoding by hand with two small Llamas and caches that are cut back to what was accepted."""
import torch
from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM
torch.manual_seed(0)
def make(size, layers):
    return LlamaForCausalLM(LlamaConfig(vocab_size=8000, hidden_size=size, intermediate_size=size * 3, num_hidden_layers=layers,
                                        num_attention_heads=size // 64)).to("cuda", torch.bfloat16).eval()
large, small = make(1024, 8), make(256, 2)
with torch.no_grad():
    ids = torch.randint(0, 8000, (1, 512), device="cuda")
    a, b = DynamicCache(), DynamicCache()
    large(ids[:, :-1], past_key_values=a)
    small(ids[:, :-1], past_key_values=b)
    for turn in range(12):
        draft = ids
        for _ in range(4):
            word = small(draft[:, b.get_seq_length():], past_key_values=b).logits[:, -1].argmax(-1, keepdim=True)
            draft = torch.cat([draft, word], 1)
        own = large(draft[:, a.get_seq_length():], past_key_values=a).logits[:, -5:].argmax(-1)
        agreed = int((own[:, :4] == draft[:, -4:]).long().cumprod(1).sum())
        ids = torch.cat([ids, own[:, :agreed + 1]], 1)
        a.crop(ids.shape[1] - 1)
        b.crop(min(b.get_seq_length(), ids.shape[1] - 1))
