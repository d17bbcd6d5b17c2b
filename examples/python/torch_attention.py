"""Attention in torch: the call, a model that goes through it unchanged, documents, a cache. CPU tensors here; CUDA's are the same lines."""

import torch
import torch.nn.functional as F

import gpu_headroom.torch as ht

torch.manual_seed(0)
q, k, v = (torch.randn(2, h, 128, 32, requires_grad=True) for h in (8, 2, 2))  # [batch, heads, len, head_dim]; 8 heads share 2
o, lse = ht.attention(q, k, v, is_causal=True, return_lse=True)
(o.sum() + lse.sum()).backward()
print("o", tuple(o.shape), "lse", tuple(lse.shape), "dk", tuple(k.grad.shape))

layer = torch.nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
x = torch.randn(2, 50, 64, requires_grad=True)
with ht.replace_sdpa() as replaced:
    layer(x).sum().backward()
print(replaced.explain(), end="")

tokens = torch.tensor([0, 50, 70, 128], dtype=torch.int32)  # three documents, packed: [tokens, heads, head_dim]
packed = ht.attention_varlen(*(x[0].transpose(0, 1) for x in (q, k, v)), tokens, is_causal=True)
alone = ht.attention(*(x[:1, :, 50:70] for x in (q, k, v)), is_causal=True)[0].transpose(0, 1)
print(f"the second document, packed and alone: {(packed[50:70] - alone).abs().max():.1e} apart")

with torch.no_grad():  # one new position of each sequence over a cache with 100 and 128 keys
    new = ht.attention_with_cache(q[:, :, :1], k, v, torch.tensor([100, 128]))
    want = F.scaled_dot_product_attention(q[:1, :, :1], *(x[:1, :, :100].repeat_interleave(4, 1) for x in (k, v)))
print(f"decoding: {(new[:1] - want).abs().max():.1e} from torch's")
