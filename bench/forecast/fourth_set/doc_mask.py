"""flex_attention: packed documents with a window and a soft cap, compiled, forward and backward."""
import torch
import torch.nn as nn
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
torch.manual_seed(0)
flex = torch.compile(flex_attention)
qkv, out = nn.Linear(512, 1536).cuda(), nn.Linear(512, 512).cuda()
optimizer = torch.optim.AdamW([*qkv.parameters(), *out.parameters()], lr=1e-4)
def cap(score, b, h, q, k):
    return 20 * torch.tanh(score / 20)
for step in range(4):
    ends = torch.sort(torch.randint(1, 2048, (4, 12))).values
    document = torch.searchsorted(ends, torch.arange(2048).expand(4, -1).contiguous(), right=True).cuda()
    def seen(b, h, q, k):
        return (q >= k) & (q - k < 512) & (document[b, q] == document[b, k])
    mask = create_block_mask(seen, 4, None, 2048, 2048, device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        q, k, v = qkv(torch.randn(4, 2048, 512, device="cuda")).view(4, 2048, 3, 8, 64).permute(2, 0, 3, 1, 4)
        loss = out(flex(q, k, v, score_mod=cap, block_mask=mask).transpose(1, 2).reshape(4, 2048, 512)).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
