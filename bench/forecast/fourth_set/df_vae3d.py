"""diffusers: a video VAE is trained in bf16, frames in time and space."""
import torch
from diffusers import AutoencoderKLCogVideoX
torch.manual_seed(0)
model = AutoencoderKLCogVideoX(block_out_channels=(32, 64, 64, 64), latent_channels=8, layers_per_block=1, norm_num_groups=8, sample_height=64, sample_width=64)
model = model.to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(3):
    video = torch.randn(1, 3, 9, 96, 96, device="cuda", dtype=torch.bfloat16)
    post = model.encode(video).latent_dist
    back = model.decode(post.sample()).sample
    loss = torch.nn.functional.l1_loss(back.float(), video.float()) + 1e-6 * post.kl().mean().float()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
