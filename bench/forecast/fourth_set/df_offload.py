"""diffusers: a Flux transformer made small and its VAE take turns on the card by accelerate's hooks."""
import torch
from accelerate import cpu_offload_with_hook
from diffusers import AutoencoderKL, FlowMatchEulerDiscreteScheduler, FluxTransformer2DModel
torch.manual_seed(0)
flux = FluxTransformer2DModel(in_channels=64, num_layers=4, num_single_layers=8, attention_head_dim=64, num_attention_heads=12, joint_attention_dim=512,
                              pooled_projection_dim=256, axes_dims_rope=(8, 28, 28)).to(torch.bfloat16).eval()
vae = AutoencoderKL(block_out_channels=(64, 128, 128, 128), down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
                    latent_channels=16, norm_num_groups=16).to(torch.bfloat16).eval()
flux, first = cpu_offload_with_hook(flux, "cuda")
vae, second = cpu_offload_with_hook(vae, "cuda", prev_module_hook=first)
steps = FlowMatchEulerDiscreteScheduler()
for picture in range(2):
    steps.set_timesteps(4, device="cuda")
    with torch.no_grad():
        x = torch.randn(2, 32 * 32, 64, device="cuda", dtype=torch.bfloat16)
        words, pooled = torch.randn(2, 128, 512, device="cuda", dtype=torch.bfloat16), torch.randn(2, 256, device="cuda", dtype=torch.bfloat16)
        places, of_words = torch.zeros(32 * 32, 3, device="cuda"), torch.zeros(128, 3, device="cuda")
        for t in steps.timesteps:
            v = flux(hidden_states=x, encoder_hidden_states=words, pooled_projections=pooled, timestep=t.expand(2).to(x.dtype) / 1000, img_ids=places,
                     txt_ids=of_words).sample
            x = steps.step(v, t, x).prev_sample
        z = x.view(2, 32, 32, 16, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(2, 16, 64, 64)
        vae(torch.nn.functional.interpolate(z[:, :3], scale_factor=4.0))
    second.offload()
