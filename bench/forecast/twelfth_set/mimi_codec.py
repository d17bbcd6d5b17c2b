"""Mimi, a codec of speech: encoded and decoded training of the decoder's side with spectral losses of three sizes, codes of eight books, weight decay, FP32."""
import torch
import torch.nn.functional as F
from transformers import MimiConfig, MimiModel

torch.manual_seed(0)
model = MimiModel(MimiConfig(num_quantizers=8, num_hidden_layers=4, sliding_window=100)).cuda()
for name, p in model.named_parameters():
    p.requires_grad_(name.startswith(("decoder", "upsample")))
params = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(params, lr=1e-4, weight_decay=0.01)


def spectral(a, b):
    total = 0
    for n in (512, 1024, 2048):
        w = torch.hann_window(n, device=a.device)
        x, y = (torch.stft(s.squeeze(1), n, n // 4, window=w, return_complex=True).abs().clamp(min=1e-5) for s in (a, b))
        total = total + (x - y).abs().mean() + (x.log() - y.log()).abs().mean()
    return total


for step in range(4):
    sound = torch.randn(8, 1, 24000 * 2, device="cuda") * 0.1
    with torch.no_grad():
        codes = model.encode(sound).audio_codes
    out = model.decode(codes).audio_values
    n = min(out.shape[-1], sound.shape[-1])
    loss = spectral(out[..., :n], sound[..., :n]) + F.l1_loss(out[..., :n], sound[..., :n])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
print(loss.item(), codes.shape)
