"""MRI: an unrolled network on complex pictures of 8 coils, data consistency by ten conjugate gradients, masks of lines, complex convolutions, fp32."""
import torch
import torch.nn as nn

torch.manual_seed(0)


def fft(x):
    return torch.fft.fftshift(torch.fft.fft2(torch.fft.ifftshift(x, dim=(-2, -1)), norm="ortho"), dim=(-2, -1))


def ifft(x):
    return torch.fft.fftshift(torch.fft.ifft2(torch.fft.ifftshift(x, dim=(-2, -1)), norm="ortho"), dim=(-2, -1))


class ComplexBlock(nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.convs = nn.ModuleList([nn.Conv2d(1, channels, 3, padding=1, dtype=torch.complex64), nn.Conv2d(channels, channels, 3, padding=1, dtype=torch.complex64), nn.Conv2d(channels, 1, 3, padding=1, dtype=torch.complex64)])
        self.shift = nn.Parameter(torch.zeros(2, channels, 1, 1))

    def forward(self, x):
        y = x[:, None]
        for conv, shift in zip(self.convs, self.shift):
            y = conv(y)
            size = torch.abs(y)
            y = y * torch.relu(size + shift) / (size + 1e-6)  # modReLU
        return x + self.convs[2](y)[:, 0]


class Unrolled(nn.Module):
    def __init__(self, rounds=4, channels=24):
        super().__init__()
        self.nets = nn.ModuleList(ComplexBlock(channels) for _ in range(rounds))
        self.weight = nn.Parameter(torch.tensor(0.05))

    def solve(self, start, maps, mask):
        def normal(x):
            return (ifft(mask * fft(maps * x[:, None])) * maps.conj()).sum(1) + self.weight * x
        x, r = torch.zeros_like(start), start
        p, rr = r, (r.conj() * r).real.sum((1, 2))
        for _ in range(10):
            a = normal(p)
            alpha = rr / (p.conj() * a).real.sum((1, 2))
            x, r = x + alpha[:, None, None] * p, r - alpha[:, None, None] * a
            new = (r.conj() * r).real.sum((1, 2))
            p, rr = r + (new / rr)[:, None, None] * p, new
        return x

    def forward(self, seen, maps, mask):
        first = (ifft(seen) * maps.conj()).sum(1)
        x = first
        for net in self.nets:
            x = self.solve(first + self.weight * net(x), maps, mask)
        return x


model = Unrolled().cuda()
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-3)
for step in range(4):
    picture = torch.randn(2, 256, 256, dtype=torch.complex64, device="cuda")
    maps = torch.randn(2, 8, 256, 256, dtype=torch.complex64, device="cuda")
    maps = maps / maps.abs().pow(2).sum(1, keepdim=True).sqrt()
    mask = (torch.rand(2, 1, 1, 256, device="cuda") < 0.25) | (torch.arange(256, device="cuda") - 128).abs().lt(12)
    out = model(mask * fft(maps * picture[:, None]), maps, mask)
    loss = torch.view_as_real(out - picture).abs().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
