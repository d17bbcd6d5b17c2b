"""minGRU and a parallel scan in log space, Heinsen's, fp16 with a scaler; sequences of several lengths."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
def scan(log_a, log_b):
    star = F.pad(log_a.cumsum(1), (0, 0, 1, 0))
    return (star + (log_b - star).logcumsumexp(1))[:, 1:].exp()
class MinGRU(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.z, self.h = nn.Linear(d, d), nn.Linear(d, d)
    def forward(self, x):
        k, h = self.z(x).float(), self.h(x).float()
        log_z, log_c = -F.softplus(-k), -F.softplus(k)
        g = torch.where(h >= 0, (h.relu() + 0.5).log(), -F.softplus(-h))
        return scan(log_c, torch.cat([torch.full_like(g[:, :1], -0.7), log_z + g], 1)).to(x.dtype)
class Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.n1, self.n2, self.gru, self.conv = nn.LayerNorm(d), nn.LayerNorm(d), MinGRU(d), nn.Conv1d(d, d, 4, groups=d, padding=3)
        self.mlp = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x):
        x = x + self.conv(x.transpose(1, 2))[..., :x.shape[1]].transpose(1, 2)
        x = x + self.gru(self.n1(x))
        return x + self.mlp(self.n2(x))
model = nn.Sequential(nn.Embedding(256, 456), *(Block(456) for _ in range(5)), nn.Linear(456, 256)).cuda()
optimizer, scaler = torch.optim.AdamW(model.parameters(), 1e-3), torch.amp.GradScaler("cuda")
for length in (301, 512, 77, 450, 512):
    ids = torch.randint(0, 256, (11, length), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(loss.item(), scaler.get_scale())
