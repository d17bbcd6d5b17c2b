"""x-transformers with what its README lists: talking heads, memory tokens, T5's biases of positions, gated residuals, sandwich norm, sparse top-k attention, macaron; an XL wrapper with memories over segments."""
import torch
from x_transformers import Decoder, TransformerWrapper, XLAutoregressiveWrapper
torch.manual_seed(0)
model = XLAutoregressiveWrapper(TransformerWrapper(num_tokens=5000, max_seq_len=256, max_mem_len=256, num_memory_tokens=8, emb_dim=256, attn_layers=Decoder(
    dim=384, depth=5, heads=6, rel_pos_bias=True, gate_residual=True, attn_pre_talking_heads=True, attn_post_talking_heads=True, attn_sparse_topk=32, macaron=True, sandwich_norm=True, attn_dropout=0.1, ff_dropout=0.1))).cuda()
optim = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(5):
    x = torch.randint(0, 5000, (4, 256 * 3 + 1)).cuda()
    loss = model(x)
    loss.backward()
    optim.step()
    optim.zero_grad()
print(loss.item())
