"""WaveNet: dilated causal convolutions of one dimension, gated, skips summed, FP32; weights normalised."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.parametrizations import weight_norm
torch.manual_seed(0)
class Layer(nn.Module):
    def __init__(self, c, d):
        super().__init__()
        self.d, self.gate, self.out = d, weight_norm(nn.Conv1d(c, 2 * c, 2, dilation=d)), weight_norm(nn.Conv1d(c, 2 * c, 1))
    def forward(self, x):
        a, b = self.gate(F.pad(x, (self.d, 0))).chunk(2, 1)
        res, skip = self.out(a.tanh() * b.sigmoid()).chunk(2, 1)
        return x + res, skip
class Net(nn.Module):
    def __init__(self, c=96):
        super().__init__()
        self.first, self.layers = nn.Embedding(256, c), nn.ModuleList(Layer(c, 2 ** (i % 9)) for i in range(18))
        self.last = nn.Sequential(nn.ReLU(), nn.Conv1d(c, 256, 1), nn.ReLU(), nn.Conv1d(256, 256, 1))
    def forward(self, ids):
        x, total = self.first(ids).transpose(1, 2), 0
        for layer in self.layers:
            x, skip = layer(x)
            total = total + skip
        return self.last(total)
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(4):
    ids = torch.randint(0, 256, (4, 8192), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1]), ids[:, 1:])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
