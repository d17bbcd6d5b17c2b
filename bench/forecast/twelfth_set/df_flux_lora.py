"""diffusers: a Flux transformer with LoRA by peft, flow matching, checkpointed, bf16, guidance, an autoencoder that encodes pictures, AdamW of FP32 adapters."""
import torch
import torch.nn.functional as F
from diffusers import AutoencoderKL, FluxTransformer2DModel
from peft import LoraConfig

torch.manual_seed(0)
vae = AutoencoderKL(in_channels=3, out_channels=3, latent_channels=16, block_out_channels=(64, 128, 256), layers_per_block=2, down_block_types=("DownEncoderBlock2D",) * 3, up_block_types=("UpDecoderBlock2D",) * 3, norm_num_groups=32)
vae.to("cuda", torch.bfloat16).requires_grad_(False)
model = FluxTransformer2DModel(in_channels=64, num_layers=4, num_single_layers=8, attention_head_dim=128, num_attention_heads=12, joint_attention_dim=1024, pooled_projection_dim=512, guidance_embeds=True, axes_dims_rope=(16, 56, 56))
model.to("cuda", torch.bfloat16).requires_grad_(False)
model.add_adapter(LoraConfig(r=16, lora_alpha=16, init_lora_weights="gaussian", target_modules=["to_k", "to_q", "to_v", "to_out.0"]))
model.enable_gradient_checkpointing()
params = [p for p in model.parameters() if p.requires_grad]
for p in params:
    p.data = p.data.float()
optimizer = torch.optim.AdamW(params, lr=1e-4, betas=(0.9, 0.99))
for step in range(4):
    pictures = torch.rand(2, 3, 256, 256, device="cuda", dtype=torch.bfloat16) * 2 - 1
    with torch.no_grad():
        latents = vae.encode(pictures).latent_dist.sample()
    b, c, h, w = latents.shape
    noise, t = torch.randn_like(latents), torch.sigmoid(torch.randn(b, device="cuda"))
    noisy = (1 - t.view(-1, 1, 1, 1)) * latents + t.view(-1, 1, 1, 1) * noise
    packed = noisy.view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w // 4, c * 4).to(torch.bfloat16)
    places = torch.zeros(h // 2, w // 2, 3, device="cuda")
    places[..., 1] += torch.arange(h // 2, device="cuda")[:, None]
    places[..., 2] += torch.arange(w // 2, device="cuda")[None]
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(hidden_states=packed, timestep=t, guidance=torch.full((b,), 3.5, device="cuda"), pooled_projections=torch.randn(b, 512, device="cuda", dtype=torch.bfloat16), encoder_hidden_states=torch.randn(b, 256, 1024, device="cuda", dtype=torch.bfloat16),
                    txt_ids=torch.zeros(256, 3, device="cuda"), img_ids=places.view(-1, 3), return_dict=False)[0]
    wanted = (noise - latents).view(b, c, h // 2, 2, w // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, h * w // 4, c * 4)
    loss = F.mse_loss(out.float(), wanted.float())
    loss.backward()
    torch.nn.utils.clip_grad_norm_(params, 1.0)
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
