"""diffusers: pictures from noise with guidance, fp16; latents are decoded in tiles."""
import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, UNet2DConditionModel
torch.manual_seed(0)
vae = AutoencoderKL(block_out_channels=(64, 128, 128, 128), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                    latent_channels=4, norm_num_groups=16, sample_size=256).to("cuda", torch.float16).eval()
vae.enable_tiling()
unet = UNet2DConditionModel(sample_size=64, block_out_channels=(128, 256, 384), cross_attention_dim=256, attention_head_dim=8,
                            down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")).to("cuda", torch.float16).eval()
steps = EulerDiscreteScheduler()
steps.set_timesteps(8, device="cuda")
with torch.no_grad():
    latents = torch.randn(4, 4, 64, 64, device="cuda", dtype=torch.float16) * steps.init_noise_sigma
    words = torch.randn(8, 77, 256, device="cuda", dtype=torch.float16)
    for t in steps.timesteps:
        both = unet(steps.scale_model_input(torch.cat([latents] * 2), t), t, words).sample
        without, with_words = both.chunk(2)
        latents = steps.step(without + 7.5 * (with_words - without), t, latents).prev_sample
    pictures = vae.decode(latents / 0.18).sample
    pictures.clamp(-1, 1).cpu()
