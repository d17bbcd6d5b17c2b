"""transformers' Gemma 3 made small: windows of 128, a large vocabulary, adapters at rank 8 by hand with everything else frozen in bf16, then words
with a static cache."""
import torch
import torch.nn as nn
from transformers import Gemma3ForCausalLM, Gemma3TextConfig
torch.manual_seed(0)
class Adapted(nn.Module):
    def __init__(self, base, r=8):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.a = nn.Parameter(torch.randn(r, base.in_features, device="cuda") * 0.02)
        self.b = nn.Parameter(torch.zeros(base.out_features, r, device="cuda"))
    def forward(self, x):
        return self.base(x) + ((x.float() @ self.a.t()) @ self.b.t()).to(x.dtype) * 2
with torch.device("cuda"):
    model = Gemma3ForCausalLM(Gemma3TextConfig(vocab_size=65000, hidden_size=640, intermediate_size=2048, num_hidden_layers=7, num_attention_heads=4, num_key_value_heads=1,
                                               head_dim=256, sliding_window=128, eos_token_id=None, bos_token_id=2, pad_token_id=0)).bfloat16()
model.requires_grad_(False)
for layer in model.model.layers:
    layer.self_attn.q_proj, layer.self_attn.v_proj, layer.mlp.down_proj = Adapted(layer.self_attn.q_proj), Adapted(layer.self_attn.v_proj), Adapted(layer.mlp.down_proj)
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], 1e-3, amsgrad=True)
for step in range(5):
    ids = torch.randint(3, 65000, (3, 500), device="cuda")
    loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    out = model.generate(ids[:2, :150], max_new_tokens=12, do_sample=False, cache_implementation="static", disable_compile=True)
print(loss.item(), out.shape)
