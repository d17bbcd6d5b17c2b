"""x-transformers' own recipe for bytes: AutoregressiveWrapper, rotary places, RMSNorm, flash, gradients of four small batches added, text generated on the way."""
import torch
from x_transformers import AutoregressiveWrapper, Decoder, TransformerWrapper
torch.manual_seed(0)
model = AutoregressiveWrapper(TransformerWrapper(num_tokens=256, max_seq_len=1024, attn_layers=Decoder(dim=512, depth=6, heads=8, rotary_pos_emb=True, use_rmsnorm=True, attn_flash=True, ff_swish=True, ff_glu=True))).cuda()
optim = torch.optim.Adam(model.parameters(), lr=1e-4)
data = torch.randint(0, 256, (400_000,)).to(torch.uint8)
def cycle():
    while True:
        i = torch.randint(0, len(data) - 1025, (4,))
        yield torch.stack([data[j : j + 1025] for j in i]).long().cuda()
loader = cycle()
for step in range(6):
    model.train()
    for _ in range(4):
        loss = model(next(loader))
        (loss / 4).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optim.step()
    optim.zero_grad()
    if step % 3 == 0:
        model.eval()
        with torch.no_grad():
            model(next(loader))
            sample = model.generate(next(loader)[0, :64], 100, cache_kv=True)
print(loss.item(), sample.shape)
