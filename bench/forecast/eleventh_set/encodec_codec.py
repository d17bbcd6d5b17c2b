"""EnCodec: convolutions and LSTMs over sound at 24 kHz, straight-through codes, spectral and wave losses, FP32, Adam of foreach."""
import torch
from transformers import EncodecConfig, EncodecModel

torch.manual_seed(0)
model = EncodecModel(EncodecConfig(num_filters=16, hidden_size=96, codebook_size=512, codebook_dim=96)).cuda().train()
optimizer = torch.optim.Adam(model.parameters(), lr=3e-4, betas=(0.5, 0.9), foreach=True)
window = torch.hann_window(1024, device="cuda")
spectrum = lambda x: torch.stft(x.squeeze(1), 1024, 256, window=window, return_complex=True).abs()
for step in range(5):
    sound = torch.randn(8, 1, 24000, device="cuda") * 0.1
    latent = model.encoder(sound)
    with torch.no_grad():
        codes = model.quantizer.encode(latent, bandwidth=6.0)
        quantized = model.quantizer.decode(codes)
    commit = torch.nn.functional.mse_loss(latent, quantized)
    out = model.decoder(latent + (quantized - latent).detach())[..., :24000]
    loss = (out - sound).abs().mean() + (spectrum(out) - spectrum(sound)).pow(2).mean() + 0.25 * commit
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
