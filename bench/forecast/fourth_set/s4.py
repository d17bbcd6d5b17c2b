"""State spaces by long convolutions through FFT, complex kernels made from the weights at each step."""
import math
import torch
import torch.nn as nn
torch.manual_seed(0)
class S4D(nn.Module):
    def __init__(self, h, n=32):
        super().__init__()
        self.dt = nn.Parameter(torch.rand(h) * (math.log(0.1) - math.log(0.001)) + math.log(0.001))
        self.c = nn.Parameter(torch.randn(h, n, 2))
        self.real, self.imag, self.d = nn.Parameter(torch.full((h, n), -0.7)), nn.Parameter(math.pi * torch.arange(n).repeat(h, 1).float()), nn.Parameter(torch.randn(h))
        self.norm, self.out = nn.LayerNorm(h), nn.Conv1d(h, 2 * h, 1)
    def forward(self, x):
        length = x.shape[-1]
        a = -self.real.exp() + 1j * self.imag
        da = a * self.dt.exp().unsqueeze(-1)
        power = (da.unsqueeze(-1) * torch.arange(length, device=x.device)).exp()
        kernel = 2 * torch.einsum("hn,hnl->hl", torch.view_as_complex(self.c) * (da.exp() - 1) / a, power).real
        y = torch.fft.irfft(torch.fft.rfft(x, n=2 * length) * torch.fft.rfft(kernel, n=2 * length), n=2 * length)[..., :length] + x * self.d.unsqueeze(-1)
        return self.norm((x + nn.functional.glu(self.out(nn.functional.gelu(y)), 1)).transpose(1, 2)).transpose(1, 2)
model = nn.Sequential(nn.Conv1d(1, 128, 1), *(S4D(128) for _ in range(4)), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(128, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for step in range(4):
    loss = nn.functional.cross_entropy(model(torch.randn(16, 1, 2048, device="cuda")), torch.randint(0, 10, (16,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
