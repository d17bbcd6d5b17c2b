"""Linear attention in chunks with decays, states handed from chunk to chunk, products in FP32 and bf16."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Retain(nn.Module):
    def __init__(self, size=512, heads=4, chunk=128):
        super().__init__()
        self.heads, self.chunk = heads, chunk
        self.qkvg, self.out, self.norm, self.pre = nn.Linear(size, 4 * size, bias=False), nn.Linear(size, size, bias=False), nn.GroupNorm(heads, size), nn.RMSNorm(size)
        self.register_buffer("decay", torch.log(1 - 2.0 ** (-5 - torch.arange(heads))))
    def forward(self, x):
        b, n, c = x.shape
        q, k, v, g = self.qkvg(self.pre(x)).chunk(4, -1)
        q, k, v = (t.view(b, n // self.chunk, self.chunk, self.heads, -1).permute(1, 0, 3, 2, 4) for t in (q, k, v))
        place = torch.arange(self.chunk, device=x.device)
        inner = torch.exp(self.decay[:, None, None] * (place[:, None] - place)).tril()
        state, outs = torch.zeros(b, self.heads, c // self.heads, c // self.heads, device=x.device), []
        for a, d, e in zip(q, k, v):
            y = ((a @ d.transpose(-1, -2)) * inner).to(e.dtype) @ e
            y = y + (a.float() * torch.exp(self.decay[:, None] * (place + 1))[..., None]) @ state
            late = torch.exp(self.decay[:, None] * (self.chunk - 1 - place))[..., None]
            state = state * torch.exp(self.decay * self.chunk)[:, None, None] + (d.float() * late).transpose(-1, -2) @ e.float()
            outs.append(y)
        y = torch.stack(outs).permute(1, 0, 3, 2, 4).reshape(b * n, c)
        return x + self.out((self.norm(y).view(b, n, c) * torch.sigmoid(g)))
model = nn.Sequential(*(Retain() for _ in range(5))).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
for step in range(4):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = model(torch.randn(8, 1024, 512, device="cuda")).float().pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
