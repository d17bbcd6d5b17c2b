"""diffusers: PixArt's transformer learns in fp16 by Accelerate, with learned variance, masked captions and gradients accumulated twice."""
import torch
from accelerate import Accelerator
from diffusers import DDPMScheduler, PixArtTransformer2DModel

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=2)
with torch.device("cuda"):
    model = PixArtTransformer2DModel(num_attention_heads=12, attention_head_dim=64, in_channels=4, out_channels=8, num_layers=12, cross_attention_dim=768, sample_size=64, caption_channels=1024, use_additional_conditions=False)
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5, weight_decay=3e-2, eps=1e-10)
data = torch.utils.data.TensorDataset(torch.randn(64, 4, 64, 64), torch.randn(64, 60, 1024))
loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
noise_of = DDPMScheduler()
for latents, words in loader:
    with accelerator.accumulate(model):
        noise = torch.randn_like(latents)
        t = torch.randint(0, 1000, (len(latents),), device=latents.device)
        out = model(noise_of.add_noise(latents, noise, t), encoder_hidden_states=words, encoder_attention_mask=torch.ones(words.shape[:2], device="cuda"), timestep=t, added_cond_kwargs={"resolution": None, "aspect_ratio": None}).sample.chunk(2, 1)[0]
        loss = torch.nn.functional.mse_loss(out.float(), noise.float())
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
