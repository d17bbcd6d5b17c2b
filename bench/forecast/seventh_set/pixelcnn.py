"""A gated PixelCNN: masked convolutions down and across, mixtures of logistics as a loss, Adam with an exponential rate, FP32; then pixels are drawn
row by row."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
C, K = 80, 8
class Gated(nn.Module):
    def __init__(self, first=False):
        super().__init__()
        self.v, self.h = nn.Conv2d(C, 2 * C, (2, 5), padding=(2, 2)), nn.Conv2d(C, 2 * C, (1, 3), padding=(0, 3) if first else (0, 2))
        self.link, self.out, self.first = nn.Conv2d(2 * C, 2 * C, 1), nn.Conv2d(C, C, 1), first
    def forward(self, v, h):
        n, w = v.shape[2:]
        a = self.v(v)[:, :, :n]
        b = self.h(h)[..., :w] + self.link(F.pad(a, (0, 0, 1, 0))[:, :, :-1])
        gate = lambda y: y.chunk(2, 1)[0].tanh() * y.chunk(2, 1)[1].sigmoid()
        y = self.out(gate(b))
        return gate(a), y if self.first else y + h
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp, self.layers = nn.Conv2d(3, C, 1), nn.ModuleList(Gated(i == 0) for i in range(9))
        self.out = nn.Sequential(nn.ReLU(), nn.Conv2d(C, 128, 1), nn.ReLU(), nn.Conv2d(128, K * 10, 1))
    def forward(self, x):
        v = h = self.inp(x)
        for layer in self.layers:
            v, h = layer(v, h)
        return self.out(h)
def loss_of(x, out):
    b, _, n, w = x.shape
    out = out.view(b, 10, K, n, w)
    pi, mean, scale = out[:, 0].log_softmax(1), out[:, 1:4].clone(), out[:, 4:7].clamp(min=-7)
    coef = out[:, 7:].tanh()
    x = x[:, :, None].expand(-1, -1, K, -1, -1)
    mean[:, 1] = mean[:, 1] + coef[:, 0] * x[:, 0]
    mean[:, 2] = mean[:, 2] + coef[:, 1] * x[:, 0] + coef[:, 2] * x[:, 1]
    c, inv = x - mean, torch.exp(-scale)
    up, down = inv * (c + 1 / 255), inv * (c - 1 / 255)
    inner = torch.where(up.sigmoid() - down.sigmoid() > 1e-5, torch.log((up.sigmoid() - down.sigmoid()).clamp(min=1e-12)), inv * c - scale - 2 * F.softplus(inv * c) - 4.85)
    logp = torch.where(x < -0.999, up - F.softplus(up), torch.where(x > 0.999, -F.softplus(down), inner))
    return -torch.logsumexp(logp.sum(1) + pi, 1).sum() / b
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), 4e-4)
schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.999)
for step in range(5):
    x = torch.randint(0, 256, (36, 3, 32, 32), device="cuda").float() / 127.5 - 1
    loss = loss_of(x, model(x))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    schedule.step()
with torch.no_grad():
    x = torch.zeros(9, 3, 32, 32, device="cuda")
    for i in range(6):
        for j in range(32):
            out = model(x[:, :, :i + 1])[:, :, i, j].view(9, 10, K)
            pick = (out[:, 0] - torch.log(-torch.log(torch.rand(9, K, device="cuda")))).argmax(1)
            m = out[:, 1:4].gather(2, pick[:, None, None].expand(-1, 3, 1))[..., 0]
            x[:, :, i, j] = m.clamp(-1, 1)
print(loss.item(), x.shape)
