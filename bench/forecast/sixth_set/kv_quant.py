"""Generation with a cache of one's own in transformers: keys by channel and values by token in 4 bits, packed two a byte, a residue of 48 words kept in bf16."""
import torch
from transformers import Cache, LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import DynamicLayer
torch.manual_seed(0)
def pack(x, dim):
    low, high = x.amin(dim, keepdim=True), x.amax(dim, keepdim=True)
    scale = ((high - low) / 15).clamp(min=1e-5)
    q = ((x - low) / scale).round().to(torch.uint8)
    return q[..., ::2] | q[..., 1::2] << 4, scale, low
def unpack(packed):
    q, scale, low = packed
    return torch.stack((q & 15, q >> 4), -1).flatten(-2).to(scale.dtype) * scale + low
class Small(DynamicLayer):
    def __init__(self, *a, **k):
        super().__init__(*a, **k)
        self.old, self.seen = [], 0
    def update(self, k, v, *_, **__):
        if not self.is_initialized:
            self.lazy_initialization(k, v)
        self.seen += k.shape[2]
        self.keys, self.values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        past = [(unpack(a), unpack(b)) for a, b in self.old]
        out = torch.cat([*(a for a, _ in past), self.keys], 2), torch.cat([*(b for _, b in past), self.values], 2)
        if self.keys.shape[2] >= 96:
            n = self.keys.shape[2] - 48
            self.old.append((pack(self.keys[:, :, :n], 2), pack(self.values[:, :, :n], 3)))
            self.keys, self.values = self.keys[:, :, n:].clone(), self.values[:, :, n:].clone()
        return out
    def get_seq_length(self):
        return self.seen
model = LlamaForCausalLM(LlamaConfig(vocab_size=12001, hidden_size=768, intermediate_size=2000, num_hidden_layers=7, num_attention_heads=12, num_key_value_heads=6, bos_token_id=None, eos_token_id=None,
                                     pad_token_id=0)).to("cuda", torch.bfloat16).eval()
ids = torch.randint(1, 12001, (10, 777), device="cuda")
with torch.no_grad():
    for _ in range(2):
        cache = Cache(layers=[Small() for _ in range(7)])
        print(model.generate(ids, past_key_values=cache, max_new_tokens=110, do_sample=True, temperature=0.8, min_p=0.05).shape, torch.cuda.max_memory_allocated() // 2**20)
