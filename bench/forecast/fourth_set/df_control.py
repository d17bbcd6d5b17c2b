"""diffusers: a ControlNet is trained beside a frozen U-Net, bf16 by autocast."""
import torch
import torch.nn.functional as F
from diffusers import ControlNetModel, DDPMScheduler, UNet2DConditionModel
torch.manual_seed(0)
unet = UNet2DConditionModel(sample_size=32, block_out_channels=(96, 192, 192), cross_attention_dim=256, attention_head_dim=8, norm_num_groups=16,
                            down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
                            up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"))
control = ControlNetModel.from_unet(unet, conditioning_embedding_out_channels=(16, 32, 64, 96)).cuda()
unet = unet.to("cuda", torch.bfloat16).requires_grad_(False)
control.enable_gradient_checkpointing()
noises = DDPMScheduler()
optimizer = torch.optim.AdamW(control.parameters(), lr=1e-5)
for step in range(4):
    latents, words = torch.randn(8, 4, 32, 32, device="cuda"), torch.randn(8, 77, 256, device="cuda")
    hints = torch.rand(8, 3, 256, 256, device="cuda")
    noise, times = torch.randn_like(latents), torch.randint(0, 1000, (8,), device="cuda")
    noisy = noises.add_noise(latents, noise, times)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        down, middle = control(noisy, times, encoder_hidden_states=words, controlnet_cond=hints, return_dict=False)
        guess = unet(noisy, times, encoder_hidden_states=words, down_block_additional_residuals=down, mid_block_additional_residual=middle).sample
        loss = F.mse_loss(guess.float(), noise)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(control.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
