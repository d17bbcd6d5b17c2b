"""diffusers: DreamBooth as its script has it: SD 1.5's own sizes, pictures of a class in the same batch, the text encoder trained too, bitsandbytes' AdamW, fp16."""
import itertools
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from diffusers.optimization import get_scheduler
from accelerate import Accelerator
import bitsandbytes as bnb
from transformers import CLIPTextConfig, CLIPTextModel

torch.manual_seed(0)
accelerator = Accelerator(mixed_precision="fp16", gradient_accumulation_steps=1)
with torch.device("cuda"):
    unet = UNet2DConditionModel(sample_size=64, cross_attention_dim=768, attention_head_dim=8, block_out_channels=(320, 640, 1280, 1280))
    vae = AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(128, 256, 512, 512), layers_per_block=2, latent_channels=4).to(torch.float16)
    words = CLIPTextModel(CLIPTextConfig(vocab_size=49408, hidden_size=768, intermediate_size=3072, num_hidden_layers=12, num_attention_heads=12, max_position_embeddings=77))
vae.requires_grad_(False)
unet.enable_gradient_checkpointing()
words.gradient_checkpointing_enable()
noises = DDPMScheduler(num_train_timesteps=1000, beta_schedule="scaled_linear", beta_start=0.00085, beta_end=0.012)
optimizer = bnb.optim.AdamW8bit(itertools.chain(unet.parameters(), words.parameters()), lr=5e-6, weight_decay=1e-2)
rate = get_scheduler("constant_with_warmup", optimizer=optimizer, num_warmup_steps=2, num_training_steps=100)
unet, words, optimizer, rate = accelerator.prepare(unet, words, optimizer, rate)
for step in range(4):
    pictures, ids = torch.rand(4, 3, 512, 512, device="cuda") * 2 - 1, torch.randint(0, 49407, (4, 77), device="cuda")
    with accelerator.accumulate(unet):
        latents = vae.encode(pictures.to(torch.float16)).latent_dist.sample() * vae.config.scaling_factor
        noise = torch.randn_like(latents) + 0.1 * torch.randn(latents.shape[0], latents.shape[1], 1, 1, device="cuda")
        at = torch.randint(0, 1000, (4,), device="cuda").long()
        noisy = noises.add_noise(latents, noise, at)
        said = unet(noisy, at, words(ids)[0], return_dict=False)[0]
        own, other = said.chunk(2)
        target, before = noise.chunk(2)
        loss = F.mse_loss(own.float(), target.float()) + F.mse_loss(other.float(), before.float())
        accelerator.backward(loss)
        if accelerator.sync_gradients:
            accelerator.clip_grad_norm_(itertools.chain(unet.parameters(), words.parameters()), 1.0)
        optimizer.step()
        rate.step()
        optimizer.zero_grad(set_to_none=True)
print(loss.item())
