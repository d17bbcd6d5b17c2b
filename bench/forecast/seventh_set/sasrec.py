"""SASRec: sequences of items padded on the left, one negative for each place, BCE over places that are there; then ranks of all items in chunks, hits
counted on the host."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
items, D, L = 60000, 128, 200
class SAS(nn.Module):
    def __init__(self):
        super().__init__()
        self.item, self.pos = nn.Embedding(items + 1, D, padding_idx=0), nn.Embedding(L, D)
        self.attn = nn.ModuleList(nn.MultiheadAttention(D, 2, 0.2, batch_first=True) for _ in range(3))
        self.n1, self.n2 = nn.ModuleList(nn.LayerNorm(D) for _ in range(3)), nn.ModuleList(nn.LayerNorm(D) for _ in range(3))
        self.ff = nn.ModuleList(nn.Sequential(nn.Conv1d(D, D, 1), nn.Dropout(0.2), nn.ReLU(), nn.Conv1d(D, D, 1), nn.Dropout(0.2)) for _ in range(3))
    def forward(self, seq):
        x = F.dropout(self.item(seq) * D ** 0.5 + self.pos(torch.arange(L, device=seq.device)), 0.2, self.training)
        gone, causal = (seq == 0)[..., None], ~torch.tril(torch.ones(L, L, dtype=torch.bool, device=seq.device))
        x = x.masked_fill(gone, 0)
        for a, n, m, f in zip(self.attn, self.n1, self.n2, self.ff):
            q = n(x)
            x = q + a(q, x, x, attn_mask=causal, need_weights=False)[0]
            x = m(x)
            x = (x + f(x.transpose(1, 2)).transpose(1, 2)).masked_fill(gone, 0)
        return x
model = SAS().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.98))
for step in range(6):
    seq = torch.randint(1, items, (96, L + 1))
    for row, n in enumerate(torch.randint(0, 180, (96,)).tolist()):
        seq[row, :n] = 0
    seq = seq.cuda()
    negative = torch.randint(1, items, (96, L), device="cuda")
    h, there = model(seq[:, :-1]), torch.where(seq[:, 1:] != 0)
    good, bad = (h * model.item(seq[:, 1:])).sum(-1), (h * model.item(negative)).sum(-1)
    loss = F.binary_cross_entropy_with_logits(good[there], torch.ones_like(good)[there]) + F.binary_cross_entropy_with_logits(bad[there], torch.zeros_like(bad)[there])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
model.eval()
with torch.no_grad():
    h, target, above = model(seq[:, :-1])[:, -1], seq[:, -1], 0
    score = (h * model.item(target)).sum(1)
    for c in range(1, items, 8192):
        above = above + ((h @ model.item.weight[c:c + 8192].t()) > score[:, None]).sum(1)
    print(loss.item(), sum(r < 10 for r in above.tolist()))
