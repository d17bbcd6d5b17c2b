"""diffusers: Stable Audio's transformer on latents of its frozen autoencoder, velocity targets, bf16 autocast, checkpointed, then a few steps of sampling."""
import torch
from diffusers import AutoencoderOobleck, DPMSolverMultistepScheduler, StableAudioDiTModel

torch.manual_seed(0)
with torch.device("cuda"):
    vae = AutoencoderOobleck(encoder_hidden_size=64, downsampling_ratios=[2, 4, 4, 8], channel_multiples=[1, 2, 4, 8], decoder_channels=32, decoder_input_channels=32, audio_channels=2, sampling_rate=44100).requires_grad_(False).eval()
    model = StableAudioDiTModel(sample_size=512, in_channels=32, num_layers=8, attention_head_dim=64, num_attention_heads=10, num_key_value_attention_heads=5, out_channels=32, cross_attention_dim=512, time_proj_dim=256, global_states_input_dim=1024, cross_attention_input_dim=512)
model.enable_gradient_checkpointing()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.999), weight_decay=1e-3)
for step in range(4):
    sound = torch.randn(4, 2, 65536, device="cuda") * 0.2
    with torch.no_grad():
        latent = vae.encode(sound).latent_dist.sample()
    t = torch.rand(4, device="cuda")
    alpha, sigma = torch.cos(t * torch.pi / 2)[:, None, None], torch.sin(t * torch.pi / 2)[:, None, None]
    noise = torch.randn_like(latent)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(alpha * latent + sigma * noise, t, encoder_hidden_states=torch.randn(4, 96, 512, device="cuda"), global_hidden_states=torch.randn(4, 1, 1024, device="cuda")).sample
        loss = torch.nn.functional.mse_loss(out.float(), alpha * noise - sigma * latent)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
scheduler = DPMSolverMultistepScheduler(prediction_type="v_prediction")
scheduler.set_timesteps(4, device="cuda")
x = torch.randn(1, 32, 256, device="cuda") * scheduler.init_noise_sigma
with torch.no_grad():
    for t in scheduler.timesteps:
        out = model(scheduler.scale_model_input(x, t), t[None] / 1000, encoder_hidden_states=torch.randn(1, 96, 512, device="cuda"), global_hidden_states=torch.randn(1, 1, 1024, device="cuda")).sample
        x = scheduler.step(out, t, x).prev_sample
    print(loss.item(), vae.decode(x).sample.shape)
