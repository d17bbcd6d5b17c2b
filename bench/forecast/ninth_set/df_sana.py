"""diffusers: Sana, linear attention on the latents of a deep-compression autoencoder, trained whole in bf16 by autocast, an EMA of diffusers on the card."""
import torch
from diffusers import AutoencoderDC, SanaTransformer2DModel
from diffusers.training_utils import EMAModel

torch.manual_seed(0)
with torch.device("cuda"):
    vae = AutoencoderDC(latent_channels=32, encoder_block_out_channels=(64, 128, 256, 256, 512, 512), decoder_block_out_channels=(64, 128, 256, 256, 512, 512), encoder_layers_per_block=(1, 1, 1, 1, 1, 1), decoder_layers_per_block=(1, 1, 1, 1, 1, 1)).half().requires_grad_(False).eval()
    model = SanaTransformer2DModel(in_channels=32, out_channels=32, num_attention_heads=24, attention_head_dim=32, num_layers=10, num_cross_attention_heads=12, cross_attention_head_dim=64, cross_attention_dim=768, caption_channels=1024, sample_size=16)
ema = EMAModel(model.parameters(), decay=0.999)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(5):
    pictures = torch.rand(8, 3, 512, 512, device="cuda", dtype=torch.half) * 2 - 1
    with torch.no_grad():
        latents = vae.encode(pictures).latent.float() * 0.41407
    noise, t = torch.randn_like(latents), torch.rand(8, device="cuda")
    noisy = (1 - t.view(-1, 1, 1, 1)) * latents + t.view(-1, 1, 1, 1) * noise
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(noisy, encoder_hidden_states=torch.randn(8, 120, 1024, device="cuda"), encoder_attention_mask=torch.ones(8, 120, device="cuda"), timestep=t * 1000).sample
        loss = ((out - (noise - latents)) ** 2).mean()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    optimizer.step()
    optimizer.zero_grad()
    ema.step(model.parameters())
with torch.no_grad():
    vae.decode(latents[:2].half())
