"""diffusers: LoRA on Wan's transformer for films of 17 frames, flow matching, bf16 with FP32 adapters, checkpointed, 8-bit AdamW, latents by its VAE."""
import bitsandbytes as bnb
import torch
from diffusers import AutoencoderKLWan, FlowMatchEulerDiscreteScheduler, WanTransformer3DModel
from peft import LoraConfig

torch.manual_seed(0)
with torch.device("cuda"):
    vae = AutoencoderKLWan(base_dim=48, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=1).to(torch.bfloat16).requires_grad_(False).eval()
    model = WanTransformer3DModel(num_attention_heads=12, attention_head_dim=128, in_channels=16, out_channels=16, text_dim=1024, freq_dim=256, ffn_dim=6144, num_layers=10).to(torch.bfloat16).requires_grad_(False)
model.add_adapter(LoraConfig(r=32, lora_alpha=32, init_lora_weights="gaussian", target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
model.enable_gradient_checkpointing()
trained = [p for p in model.parameters() if p.requires_grad]
for p in trained:
    p.data = p.data.float()
optimizer = bnb.optim.AdamW8bit(trained, lr=1e-4)
noise_of = FlowMatchEulerDiscreteScheduler(shift=3.0)
for step in range(4):
    film = torch.rand(1, 3, 17, 192, 320, device="cuda", dtype=torch.bfloat16) * 2 - 1
    with torch.no_grad():
        latents = vae.encode(film).latent_dist.sample()
    words = torch.randn(1, 256, 1024, device="cuda", dtype=torch.bfloat16)
    noise = torch.randn_like(latents)
    sigma = torch.rand(1, device="cuda").view(-1, 1, 1, 1, 1)
    noisy = ((1 - sigma) * latents + sigma * noise).to(torch.bfloat16)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        out = model(noisy, timestep=(sigma.flatten() * 1000), encoder_hidden_states=words, return_dict=False)[0]
    loss = torch.nn.functional.mse_loss(out.float(), (noise - latents).float())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
