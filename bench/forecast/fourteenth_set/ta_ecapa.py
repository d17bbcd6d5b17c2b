"""ECAPA-TDNN for speakers: mel spectra by torchaudio on the card, SpecAugment, dilated Res2 blocks, pooling by attention, an angular margin, cyclic rates, pairs scored."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchaudio

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, c, dilation, scale=8):
        super().__init__()
        self.into, self.out = nn.Sequential(nn.Conv1d(c, c, 1), nn.ReLU(), nn.BatchNorm1d(c)), nn.Sequential(nn.Conv1d(c, c, 1), nn.ReLU(), nn.BatchNorm1d(c))
        self.parts = nn.ModuleList(nn.Sequential(nn.Conv1d(c // scale, c // scale, 3, padding=dilation, dilation=dilation), nn.ReLU(), nn.BatchNorm1d(c // scale)) for _ in range(scale - 1))
        self.squeeze = nn.Sequential(nn.AdaptiveAvgPool1d(1), nn.Conv1d(c, 128, 1), nn.ReLU(), nn.Conv1d(128, c, 1), nn.Sigmoid())

    def forward(self, x):
        pieces, done = self.into(x).chunk(len(self.parts) + 1, 1), []
        for i, piece in enumerate(pieces):
            done.append(piece if i == 0 else self.parts[i - 1](piece if i == 1 else piece + done[-1]))
        y = self.out(torch.cat(done, 1))
        return x + y * self.squeeze(y)


class Ecapa(nn.Module):
    def __init__(self, c=512, mels=80, size=192, speakers=1200):
        super().__init__()
        self.mel = torchaudio.transforms.MelSpectrogram(16000, 512, 400, 160, n_mels=mels, window_fn=torch.hamming_window)
        self.hide = nn.Sequential(torchaudio.transforms.FrequencyMasking(10), torchaudio.transforms.TimeMasking(20))
        self.into = nn.Sequential(nn.Conv1d(mels, c, 5, padding=2), nn.ReLU(), nn.BatchNorm1d(c))
        self.blocks = nn.ModuleList(Block(c, d) for d in (2, 3, 4))
        self.mix = nn.Conv1d(3 * c, 1536, 1)
        self.attend = nn.Sequential(nn.Conv1d(3 * 1536, 256, 1), nn.ReLU(), nn.BatchNorm1d(256), nn.Tanh(), nn.Conv1d(256, 1536, 1), nn.Softmax(2))
        self.out = nn.Sequential(nn.BatchNorm1d(3072), nn.Linear(3072, size), nn.BatchNorm1d(size))
        self.centres = nn.Parameter(torch.randn(speakers, size))

    def forward(self, sound):
        with torch.no_grad():
            x = (self.mel(sound) + 1e-6).log()
            x = x - x.mean(-1, keepdim=True)
            if self.training:
                x = self.hide(x)
        x, kept = self.into(x), []
        for block in self.blocks:
            x = block(x + sum(kept))
            kept.append(x)
        x = F.relu(self.mix(torch.cat(kept, 1)))
        wide = torch.cat([x, x.mean(2, keepdim=True).expand_as(x), x.var(2, keepdim=True).clamp(1e-4).sqrt().expand_as(x)], 1)
        w = self.attend(wide)
        mean = (x * w).sum(2)
        return self.out(torch.cat([mean, ((x ** 2 * w).sum(2) - mean ** 2).clamp(1e-4).sqrt()], 1))

    def loss(self, e, y, margin=0.2, scale=30):
        cos = F.linear(F.normalize(e), F.normalize(self.centres))
        sin = (1 - cos ** 2).clamp(0, 1).sqrt()
        phi = cos * torch.cos(torch.tensor(margin)) - sin * torch.sin(torch.tensor(margin))
        hot = F.one_hot(y, cos.size(1)).to(cos.dtype)
        return F.cross_entropy(scale * (hot * phi + (1 - hot) * cos), y)


model = Ecapa().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=2e-5)
rate = torch.optim.lr_scheduler.CyclicLR(optimizer, 1e-8, 1e-3, step_size_up=4, mode="triangular2", cycle_momentum=False)
for step in range(6):
    loss = model.loss(model(torch.randn(48, 32000, device="cuda")), torch.randint(0, 1200, (48,), device="cuda"))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rate.step()
model.eval()
with torch.no_grad():
    e = [F.normalize(model(torch.randn(1, n, device="cuda"))) for n in (48000, 91000, 160000, 64000)]
    print(loss.item(), [(a * b).sum().item() for a in e for b in e][:4])
