"""FastSpeech 2 by hand: sounds stretched by their durations (repeat_interleave), pitch and energy in buckets, convolutions in feed-forward layers, masks of lengths."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
D = 288
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.n1, self.n2 = nn.MultiheadAttention(D, 4, 0.1, batch_first=True), nn.LayerNorm(D), nn.LayerNorm(D)
        self.c1, self.c2 = nn.Conv1d(D, 1100, 9, padding=4), nn.Conv1d(1100, D, 1)
    def forward(self, x, pad):
        x = self.n1(x + self.a(x, x, x, key_padding_mask=pad, need_weights=False)[0]).masked_fill(pad[..., None], 0)
        return self.n2(x + self.c2(F.relu(self.c1(x.transpose(1, 2)))).transpose(1, 2)).masked_fill(pad[..., None], 0)
class Foresee(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv1d(D, D, 3, padding=1), nn.ReLU(), nn.Dropout(0.5), nn.Conv1d(D, D, 3, padding=1), nn.ReLU(), nn.Conv1d(D, 1, 1))
class Speech(nn.Module):
    def __init__(self):
        super().__init__()
        self.sounds, self.encoder, self.decoder = nn.Embedding(77, D, padding_idx=0), nn.ModuleList(Layer() for _ in range(3)), nn.ModuleList(Layer() for _ in range(4))
        self.length, self.pitch, self.energy, self.pe, self.ee, self.mel = Foresee(), Foresee(), Foresee(), nn.Embedding(256, D), nn.Embedding(256, D), nn.Linear(D, 80)
        self.register_buffer("bins", torch.linspace(-3, 3, 255))
    def forward(self, ids, durations, pitch, energy):
        pad, x = ids == 0, self.sounds(ids)
        for layer in self.encoder:
            x = layer(x, pad)
        t = x.transpose(1, 2)
        guess = self.length(t)[:, 0], self.pitch(t)[:, 0], self.energy(t)[:, 0]
        x = x + self.pe(torch.bucketize(pitch, self.bins)) + self.ee(torch.bucketize(energy, self.bins))
        x = nn.utils.rnn.pad_sequence([a.repeat_interleave(d, 0) for a, d in zip(x, durations)], batch_first=True)
        total = durations.sum(1)
        pad = torch.arange(x.shape[1], device=x.device) >= total[:, None]
        for layer in self.decoder:
            x = layer(x, pad)
        return self.mel(x), pad, guess
model = Speech().cuda()
optimizer = torch.optim.Adam(model.parameters(), 1e-3, betas=(0.9, 0.98))
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) ** -0.5, (s + 1) * 100 ** -1.5))
for step in range(5):
    lengths = torch.randint(40, 110, (8,))
    ids = nn.utils.rnn.pad_sequence([torch.randint(1, 77, (int(n),)) for n in lengths], batch_first=True)
    durations = torch.randint(2, 12, ids.shape) * (ids != 0)
    pitch, energy = torch.randn(ids.shape), torch.randn(ids.shape)
    mel, pad, (d, p, e) = model(ids.cuda(), durations.cuda(), pitch.cuda(), energy.cuda())
    goal = torch.randn(mel.shape, device="cuda")
    loss = (mel - goal).abs().masked_fill(pad[..., None], 0).sum() / (~pad).sum() / 80 + F.mse_loss(d, (durations.cuda() + 1).log()) + F.mse_loss(p, pitch.cuda()) + F.mse_loss(e, energy.cuda())
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step(), schedule.step()
    optimizer.zero_grad()
    print(loss.item())
