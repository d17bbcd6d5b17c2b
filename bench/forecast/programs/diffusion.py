"""Trains a diffusion model of diffusers to predict noise: a transformer (DiT) or a UNet."""
import argparse

import torch
import torch.nn.functional as F
from diffusers import DDPMScheduler, DiTTransformer2DModel, UNet2DConditionModel, UNet2DModel

p = argparse.ArgumentParser()
p.add_argument("--model", default="dit", choices=["dit", "unet", "text-unet"])
p.add_argument("--batch", type=int, default=16)
p.add_argument("--size", type=int, default=32)
p.add_argument("--precision", default="bf16", choices=["bf16", "fp16", "no"])
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--ema", action="store_true")
a = p.parse_args()

torch.manual_seed(0)
if a.model == "dit":
    model = DiTTransformer2DModel(num_attention_heads=12, attention_head_dim=64, in_channels=4, out_channels=4, num_layers=8, sample_size=a.size)
elif a.model == "unet":
    model = UNet2DModel(sample_size=a.size, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 256, 256, 512),
                        down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "DownBlock2D"),
                        up_block_types=("UpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"))
else:
    model = UNet2DConditionModel(sample_size=a.size, cross_attention_dim=768, block_out_channels=(160, 320, 640, 640), attention_head_dim=8)
model.to("cuda").train()
if a.checkpoint:
    model.enable_gradient_checkpointing()
average = torch.optim.swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.999)) if a.ema else None
noise_schedule = DDPMScheduler(num_train_timesteps=1000)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda", enabled=a.precision == "fp16")
types = {"bf16": torch.bfloat16, "fp16": torch.float16, "no": torch.float32}
channels = 3 if a.model == "unet" else 4
for step in range(12 if a.precision == "fp16" else 8):
    clean = torch.randn(a.batch, channels, a.size, a.size).to("cuda")
    noise, times = torch.randn_like(clean), torch.randint(0, 1000, (a.batch,), device="cuda").long()
    noisy = noise_schedule.add_noise(clean, noise, times)
    with torch.autocast("cuda", types[a.precision], enabled=a.precision != "no"):
        if a.model == "dit":
            said = model(noisy, timestep=times, class_labels=torch.randint(0, 1000, (a.batch,), device="cuda")).sample
        elif a.model == "unet":
            said = model(noisy, times).sample
        else:
            said = model(noisy, times, encoder_hidden_states=torch.randn(a.batch, 77, 768, device="cuda")).sample
        loss = F.mse_loss(said.float(), noise.float())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    if average:
        average.update_parameters(model)
    print(step, loss.item(), flush=True)
