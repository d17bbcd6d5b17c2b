"""diffusers: an unconditional U-Net in FP32 with averaged weights, then DDIM from the average."""
import torch
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.training_utils import EMAModel
torch.manual_seed(0)
model = UNet2DModel(sample_size=32, block_out_channels=(64, 128, 128), layers_per_block=2, down_block_types=("DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                    up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D")).cuda()
average = EMAModel(model.parameters(), decay=0.999, use_ema_warmup=True)
average.to("cuda")
noises = DDPMScheduler()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(5):
    clean = torch.rand(32, 3, 32, 32, device="cuda") * 2 - 1
    noise, times = torch.randn_like(clean), torch.randint(0, 1000, (32,), device="cuda")
    torch.nn.functional.mse_loss(model(noises.add_noise(clean, noise, times), times).sample, noise).backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    average.step(model.parameters())
average.store(model.parameters())
average.copy_to(model.parameters())
sampler = DDIMScheduler()
sampler.set_timesteps(5)
with torch.no_grad():
    x = torch.randn(16, 3, 32, 32, device="cuda")
    for t in sampler.timesteps:
        x = sampler.step(model(x, t).sample, t, x).prev_sample
average.restore(model.parameters())
