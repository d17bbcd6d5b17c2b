"""RWKV's time mixing by a loop over places, with a state of 64 x 64 for each head, and channel mixing."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Time(nn.Module):
    def __init__(self, d, head=64):
        super().__init__()
        self.heads, self.head = d // head, head
        self.mix = nn.Parameter(torch.rand(5, d))
        self.r, self.k, self.v, self.g, self.o = (nn.Linear(d, d, bias=False) for _ in range(5))
        self.w1, self.w2, self.w0, self.u = nn.Parameter(torch.randn(d, 64) * 0.01), nn.Parameter(torch.randn(64, d) * 0.01), nn.Parameter(torch.randn(d)), nn.Parameter(torch.randn(d // head, head))
        self.norm = nn.GroupNorm(self.heads, d)
    def forward(self, x):
        B, T, d = x.shape
        shifted = nn.functional.pad(x, (0, 0, 1, -1)) - x
        xr, xk, xv, xw, xg = (x + shifted * m for m in self.mix)
        r, k, v = (f(t).view(B, T, self.heads, self.head) for f, t in ((self.r, xr), (self.k, xk), (self.v, xv)))
        w = torch.exp(-torch.exp(self.w0 + torch.tanh(xw @ self.w1) @ self.w2)).view(B, T, self.heads, self.head)
        state = x.new_zeros(B, self.heads, self.head, self.head)
        out = []
        for t in range(T):
            kv = k[:, t].unsqueeze(-1) * v[:, t].unsqueeze(-2)
            out.append((r[:, t].unsqueeze(-2) @ (state + self.u.unsqueeze(-1) * kv)).squeeze(-2))
            state = state * w[:, t].unsqueeze(-1) + kv
        y = self.norm(torch.stack(out, 1).reshape(B * T, d)).view(B, T, d)
        return self.o(y * torch.nn.functional.silu(self.g(xg)))
class Channel(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.k, self.v, self.r, self.mix = nn.Linear(d, int(3.5 * d), bias=False), nn.Linear(int(3.5 * d), d, bias=False), nn.Linear(d, d, bias=False), nn.Parameter(torch.rand(2, d))
    def forward(self, x):
        shifted = nn.functional.pad(x, (0, 0, 1, -1)) - x
        return torch.sigmoid(self.r(x + shifted * self.mix[0])) * self.v(torch.relu(self.k(x + shifted * self.mix[1])) ** 2)
class Net(nn.Module):
    def __init__(self, d=384, layers=3, words=8192):
        super().__init__()
        self.embed, self.head = nn.Embedding(words, d), nn.Linear(d, words, bias=False)
        self.layers = nn.ModuleList(nn.ModuleList([nn.LayerNorm(d), Time(d), nn.LayerNorm(d), Channel(d)]) for _ in range(layers))
    def forward(self, ids):
        x = self.embed(ids)
        for a, t, b, c in self.layers:
            x = x + t(a(x))
            x = x + c(b(x))
        return self.head(x)
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), 6e-4, betas=(0.9, 0.99))
for step in range(4):
    ids = torch.randint(0, 8192, (6, 131), device="cuda")
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
print(loss.item())
