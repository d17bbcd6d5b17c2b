"""diffusers: Stable Diffusion XL's pipeline made from configurations, two prompts with guidance, twelve steps, fp16, its VAE in slices and tiles."""
import torch
from diffusers import AutoencoderKL, EulerDiscreteScheduler, StableDiffusionXLPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

torch.manual_seed(0)
with torch.device("cuda"):
    unet = UNet2DConditionModel(sample_size=64, in_channels=4, out_channels=4, down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"), up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), block_out_channels=(192, 384, 768), layers_per_block=2, transformer_layers_per_block=(1, 1, 4), attention_head_dim=(3, 6, 12),
                                cross_attention_dim=1280, addition_embed_type="text_time", addition_time_embed_dim=256, projection_class_embeddings_input_dim=768 + 6 * 256, use_linear_projection=True).half()
    vae = AutoencoderKL(down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4, block_out_channels=(64, 128, 256, 256), layers_per_block=2, latent_channels=4, sample_size=512, force_upcast=False).half()
    one = CLIPTextModel(CLIPTextConfig(hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8)).half()
    two = CLIPTextModelWithProjection(CLIPTextConfig(hidden_size=768, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=12, projection_dim=768)).half()
pipe = StableDiffusionXLPipeline(vae=vae, text_encoder=one, text_encoder_2=two, tokenizer=None, tokenizer_2=None, unet=unet, scheduler=EulerDiscreteScheduler(beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear"))
pipe.vae.enable_slicing()
pipe.vae.enable_tiling()
pipe.set_progress_bar_config(disable=True)
with torch.inference_mode():
    ids = torch.randint(0, 49000, (4, 77), device="cuda")
    a, b = one(ids, output_hidden_states=True), two(ids, output_hidden_states=True)
    words, pooled = torch.cat([a.hidden_states[-2], b.hidden_states[-2]], -1), b.text_embeds
out = pipe(prompt_embeds=words[:2], negative_prompt_embeds=words[2:], pooled_prompt_embeds=pooled[:2], negative_pooled_prompt_embeds=pooled[2:], height=768, width=768, num_inference_steps=12, guidance_scale=6.0, output_type="pt").images
print(out.shape)
