"""diffusers: CogVideoX's pipeline from configurations makes nine frames with guidance, ten steps, bf16, the model's parts moved to the card in turns."""
import torch
from diffusers import AutoencoderKLCogVideoX, CogVideoXDDIMScheduler, CogVideoXPipeline, CogVideoXTransformer3DModel

torch.manual_seed(0)
model = CogVideoXTransformer3DModel(num_attention_heads=16, attention_head_dim=64, in_channels=16, out_channels=16, time_embed_dim=256, text_embed_dim=1024, num_layers=10, sample_width=48, sample_height=32, sample_frames=9, max_text_seq_length=64).bfloat16()
vae = AutoencoderKLCogVideoX(block_out_channels=(64, 128, 128, 256), layers_per_block=1, sample_height=256, sample_width=384).bfloat16()
pipe = CogVideoXPipeline(tokenizer=None, text_encoder=None, vae=vae, transformer=model, scheduler=CogVideoXDDIMScheduler())
pipe.enable_model_cpu_offload()
pipe.vae.enable_tiling()
pipe.set_progress_bar_config(disable=True)
words = torch.randn(2, 64, 1024, dtype=torch.bfloat16, device="cuda")
out = pipe(prompt_embeds=words[:1], negative_prompt_embeds=words[1:], height=256, width=384, num_frames=9, num_inference_steps=10, guidance_scale=6.0, output_type="pt").frames
print(out.shape)
