"""diffusers: LoRA of a text-to-picture U-Net; its VAE and its text encoder only look."""
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, DDPMScheduler, UNet2DConditionModel
from peft import LoraConfig
from transformers import CLIPTextConfig, CLIPTextModel
torch.manual_seed(0)
vae = AutoencoderKL(block_out_channels=(64, 128, 128, 128), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                    latent_channels=4, norm_num_groups=16).to("cuda", torch.float16).requires_grad_(False)
text = CLIPTextModel(CLIPTextConfig(vocab_size=4000, hidden_size=256, intermediate_size=1024, num_hidden_layers=4, num_attention_heads=4)).to("cuda", torch.float16)
text.requires_grad_(False)
unet = UNet2DConditionModel(sample_size=32, block_out_channels=(128, 256, 256), cross_attention_dim=256, attention_head_dim=8,
                            down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D")).to("cuda", torch.float16).requires_grad_(False)
unet.add_adapter(LoraConfig(r=8, target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
weights = [p for p in unet.parameters() if p.requires_grad]
for p in weights:
    p.data = p.data.float()
noises = DDPMScheduler()
optimizer = torch.optim.AdamW(weights, lr=1e-4)
scaler = torch.amp.GradScaler()
for step in range(4):
    with torch.no_grad():
        latents = vae.encode(torch.rand(4, 3, 256, 256, device="cuda", dtype=torch.float16)).latent_dist.sample() * 0.18
        words = text(torch.randint(0, 4000, (4, 77), device="cuda"))[0]
    noise, times = torch.randn_like(latents), torch.randint(0, 1000, (4,), device="cuda")
    with torch.autocast("cuda", dtype=torch.float16):
        guess = unet(noises.add_noise(latents, noise, times), times, words).sample
    scaler.scale(F.mse_loss(guess.float(), noise.float())).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
