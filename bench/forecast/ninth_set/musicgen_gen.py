"""MusicGen plays: texts, guidance, sampled codes of four books with the delay pattern, sound by EnCodec; fp16."""
import torch
from transformers import EncodecConfig, MusicgenConfig, MusicgenDecoderConfig, MusicgenForConditionalGeneration, T5Config

torch.manual_seed(0)
text = T5Config(vocab_size=16000, d_model=768, d_kv=64, d_ff=2048, num_layers=6, num_heads=12)
sound = EncodecConfig(sampling_rate=32000, audio_channels=1, normalize=False, upsampling_ratios=[8, 5, 4, 4], num_filters=64, codebook_size=2048, target_bandwidths=[2.2], use_causal_conv=False, hidden_size=128, codebook_dim=128)
decoder = MusicgenDecoderConfig(vocab_size=2048, hidden_size=1024, ffn_dim=4096, num_hidden_layers=12, num_attention_heads=16, num_codebooks=4, pad_token_id=2048, bos_token_id=2048)
model = MusicgenForConditionalGeneration(MusicgenConfig(text_encoder=text, audio_encoder=sound, decoder=decoder)).half().cuda().eval()
model.generation_config.decoder_start_token_id = 2048
model.generation_config.pad_token_id = 2048
ids = torch.randint(2, 16000, (4, 24), device="cuda")
with torch.inference_mode():
    out = model.generate(input_ids=ids, attention_mask=torch.ones_like(ids), do_sample=True, guidance_scale=3.0, max_new_tokens=120)
print(out.shape)
