"""torchaudio: Hybrid Demucs takes songs apart in pieces, an L1 loss in time and on spectrograms, sources swapped between songs; then a song by overlapping pieces."""
import torch
import torchaudio

torch.manual_seed(0)
model = torchaudio.models.HDemucs(["drums", "bass", "other", "vocals"], channels=32, depth=5, nfft=2048).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.9, 0.999))
spectrogram = torchaudio.transforms.Spectrogram(n_fft=1024, power=1).cuda()
for step in range(4):
    sources = 0.1 * torch.randn(4, 4, 2, 88200, device="cuda")
    for s in range(4):
        sources[:, s] = sources[torch.randperm(4, device="cuda"), s] * (0.25 + torch.rand(4, 1, 1, device="cuda"))
    out = model(sources.sum(1))
    loss = (out - sources).abs().mean() + 0.1 * (spectrogram(out) - spectrogram(sources)).abs().mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    optimizer.zero_grad()
model.eval()
song, piece, hop = torch.randn(2, 400000, device="cuda"), 176400, 132300
fade = torchaudio.transforms.Fade(fade_in_len=0, fade_out_len=piece - hop, fade_shape="linear")
whole = torch.zeros(4, 2, song.shape[1], device="cuda")
with torch.no_grad():
    at = 0
    while at < song.shape[1] - (piece - hop):
        part = model(song[None, :, at:at + piece])[0]
        whole[:, :, at:at + piece] += fade(part)
        fade.fade_in_len = piece - hop
        at += hop
        if at + piece >= song.shape[1]:
            fade.fade_out_len = 0
print(loss.item(), whole.std().item())
