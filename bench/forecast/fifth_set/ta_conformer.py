"""torchaudio: a Conformer for speech with spectrograms made on the card, SpecAugment, RNN-T's loss replaced by CTC, lengths of several clips."""
import torch
import torch.nn as nn
import torchaudio
torch.manual_seed(0)
mel = torchaudio.transforms.MelSpectrogram(16000, n_fft=400, hop_length=160, n_mels=80).cuda()
mask = nn.Sequential(torchaudio.transforms.FrequencyMasking(27), torchaudio.transforms.TimeMasking(40)).cuda()
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Linear(80, 256)
        self.body = torchaudio.models.Conformer(256, 4, 1024, 5, 31, dropout=0.1)
        self.head = nn.Linear(256, 129)
    def forward(self, x, lengths):
        x, lengths = self.body(self.front(x), lengths)
        return self.head(x).log_softmax(-1), lengths
model = Net().cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for seconds in (6, 9, 4, 11, 9):
    wave = torch.randn(14, seconds * 16000, device="cuda")
    x = mask(mel(wave).clamp_min(1e-5).log()).transpose(1, 2)
    lengths = torch.linspace(0.5, 1, 14).mul(x.shape[1]).long().cuda()
    lengths[-1] = x.shape[1]
    y, n = model(x, lengths)
    targets = torch.randint(1, 129, (14, 30), device="cuda")
    loss = nn.functional.ctc_loss(y.transpose(0, 1), targets, n, torch.full((14,), 30, device="cuda"), zero_infinity=True)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
print(loss.item())
