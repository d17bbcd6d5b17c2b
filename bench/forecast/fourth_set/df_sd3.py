"""diffusers: Stable Diffusion 3's transformer made small, flow matching, checkpointed, bf16 weights with 8-bit AdamW."""
import bitsandbytes as bnb
import torch
from diffusers import SD3Transformer2DModel
torch.manual_seed(0)
model = SD3Transformer2DModel(sample_size=64, num_layers=6, attention_head_dim=64, num_attention_heads=8, joint_attention_dim=512, caption_projection_dim=512,
                              pooled_projection_dim=256, pos_embed_max_size=96).to("cuda", torch.bfloat16)
model.enable_gradient_checkpointing()
optimizer = bnb.optim.AdamW8bit(model.parameters(), lr=1e-4)
for step in range(4):
    clean = torch.randn(6, 16, 64, 64, device="cuda", dtype=torch.bfloat16)
    words, pooled = torch.randn(6, 77, 512, device="cuda", dtype=torch.bfloat16), torch.randn(6, 256, device="cuda", dtype=torch.bfloat16)
    noise = torch.randn_like(clean)
    sigma = torch.sigmoid(torch.randn(6, device="cuda")).to(torch.bfloat16)
    noisy = (1 - sigma.view(-1, 1, 1, 1)) * clean + sigma.view(-1, 1, 1, 1) * noise
    guess = model(hidden_states=noisy, encoder_hidden_states=words, pooled_projections=pooled, timestep=sigma * 1000).sample
    ((guess - (noise - clean)).float() ** 2).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
