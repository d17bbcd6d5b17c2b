"""diffusers: the U-Net of Stable Video Diffusion, temporal layers trained alone, fp16 with a scaler, checkpointed, EDM's preconditioning by hand."""
import torch
from diffusers import UNetSpatioTemporalConditionModel

torch.manual_seed(0)
with torch.device("cuda"):
    model = UNetSpatioTemporalConditionModel(sample_size=32, block_out_channels=(128, 256, 512, 512), num_attention_heads=(2, 4, 8, 8), cross_attention_dim=512, layers_per_block=2, num_frames=8, projection_class_embeddings_input_dim=768, addition_time_embed_dim=256).cuda()
for n, p in model.named_parameters():
    p.requires_grad_("temporal" in n)
model.enable_gradient_checkpointing()
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-5)
scaler = torch.amp.GradScaler()
for step in range(5):
    latents, image = torch.randn(2, 8, 4, 40, 64, device="cuda"), torch.randn(2, 1, 4, 40, 64, device="cuda")
    sigma = (torch.randn(2, device="cuda") * 1.6 + 0.7).exp().view(-1, 1, 1, 1, 1)
    noisy = latents + sigma * torch.randn_like(latents)
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(torch.cat([noisy / (sigma ** 2 + 1).sqrt(), image.expand(-1, 8, -1, -1, -1)], 2), 0.25 * sigma.log().flatten(), encoder_hidden_states=torch.randn(2, 1, 512, device="cuda"), added_time_ids=torch.rand(2, 3, device="cuda")).sample
    denoised = out.float() * (-sigma / (sigma ** 2 + 1).sqrt()) + noisy / (sigma ** 2 + 1)
    loss = (((1 + sigma ** 2) / sigma ** 2) * (denoised - latents) ** 2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
