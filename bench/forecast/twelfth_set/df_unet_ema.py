"""diffusers: a U-Net trained on pictures with Min-SNR weights, v-prediction, dropped classes, EMAModel on the card, accelerate in fp16, DDIM with guidance."""
import torch
import torch.nn.functional as F
from accelerate import Accelerator
from diffusers import DDIMScheduler, DDPMScheduler, UNet2DModel
from diffusers.optimization import get_cosine_schedule_with_warmup
from diffusers.training_utils import EMAModel, compute_snr

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
model = UNet2DModel(sample_size=64, in_channels=3, out_channels=3, layers_per_block=2, block_out_channels=(128, 128, 256, 384), num_class_embeds=11, attention_head_dim=32,
                    down_block_types=("DownBlock2D", "DownBlock2D", "AttnDownBlock2D", "AttnDownBlock2D"), up_block_types=("AttnUpBlock2D", "AttnUpBlock2D", "UpBlock2D", "UpBlock2D"))
ema = EMAModel(model.parameters(), decay=0.9999, use_ema_warmup=True, model_cls=UNet2DModel, model_config=model.config)
schedule = DDPMScheduler(prediction_type="v_prediction", beta_schedule="squaredcos_cap_v2")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
rate = get_cosine_schedule_with_warmup(optimizer, 2, 20)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.rand(96, 3, 64, 64) * 2 - 1, torch.randint(0, 10, (96,))), batch_size=16)
model, optimizer, data, rate = accelerator.prepare(model, optimizer, data, rate)
ema.to(accelerator.device)
for clean, kinds in data:
    with accelerator.accumulate(model):
        noise = torch.randn_like(clean)
        t = torch.randint(0, 1000, (clean.shape[0],), device=clean.device)
        kinds = torch.where(torch.rand(kinds.shape, device=kinds.device) < 0.1, torch.full_like(kinds, 10), kinds)
        out = model(schedule.add_noise(clean, noise, t), t, class_labels=kinds).sample
        snr = compute_snr(schedule, t)
        weights = torch.stack([snr, 5 * torch.ones_like(t)], 1).min(1)[0] / (snr + 1)
        loss = (F.mse_loss(out.float(), schedule.get_velocity(clean, noise, t).float(), reduction="none").mean((1, 2, 3)) * weights).mean()
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad()
    if accelerator.sync_gradients:
        ema.step(model.parameters())
ema.store(model.parameters())
ema.copy_to(model.parameters())
drawn = DDIMScheduler.from_config(schedule.config)
drawn.set_timesteps(6)
x, kinds = torch.randn(32, 3, 64, 64, device="cuda"), torch.cat([torch.arange(32, device="cuda") % 10, torch.full((32,), 10, device="cuda")])
with torch.no_grad(), torch.autocast("cuda", dtype=torch.float16):
    for t in drawn.timesteps:
        told, free = model(torch.cat([x, x]), t, class_labels=kinds).sample.chunk(2)
        x = drawn.step(free + 2.0 * (told - free), t, x).prev_sample
ema.restore(model.parameters())
print(loss.item(), x.shape)
