"""A Fourier neural operator: products of complex weights between two transforms, FP32."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Spectral(nn.Module):
    def __init__(self, c=48, modes=16):
        super().__init__()
        self.modes = modes
        self.low, self.high = (nn.Parameter(torch.randn(c, c, modes, modes, dtype=torch.cfloat) / c) for _ in range(2))
    def forward(self, x):
        f, m = torch.fft.rfft2(x), self.modes
        out = torch.zeros_like(f)
        out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, :m, :m], self.low)
        out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", f[:, :, -m:, :m], self.high)
        return torch.fft.irfft2(out, s=x.shape[-2:])
class Net(nn.Module):
    def __init__(self, c=48):
        super().__init__()
        self.lift, self.lower = nn.Conv2d(3, c, 1), nn.Conv2d(c, 1, 1)
        self.spectral, self.plain = nn.ModuleList(Spectral(c) for _ in range(4)), nn.ModuleList(nn.Conv2d(c, c, 1) for _ in range(4))
    def forward(self, x):
        x = self.lift(x)
        for s, p in zip(self.spectral, self.plain):
            x = nn.functional.gelu(s(x) + p(x))
        return self.lower(x)
model = Net().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    x, y = torch.randn(12, 3, 128, 128, device="cuda"), torch.randn(12, 1, 128, 128, device="cuda")
    out = model(x)
    ((out - y).flatten(1).norm(dim=1) / y.flatten(1).norm(dim=1)).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
