"""TrOCR as a VisionEncoderDecoder of DeiT and its own decoder: lines of text, fp16 with a scaler, then four beams and the loss of a validation."""
import torch
from transformers import DeiTConfig, TrOCRConfig, VisionEncoderDecoderConfig, VisionEncoderDecoderModel

torch.manual_seed(0)
encoder = DeiTConfig(hidden_size=384, num_hidden_layers=12, num_attention_heads=6, intermediate_size=1536, image_size=384, patch_size=16)
decoder = TrOCRConfig(vocab_size=16000, d_model=512, decoder_layers=6, decoder_attention_heads=8, decoder_ffn_dim=2048, cross_attention_hidden_size=384, max_position_embeddings=256)
model = VisionEncoderDecoderModel(VisionEncoderDecoderConfig.from_encoder_decoder_configs(encoder, decoder)).cuda()
model.config.decoder_start_token_id = model.generation_config.decoder_start_token_id = 2
model.config.pad_token_id = model.generation_config.pad_token_id = 1
model.config.eos_token_id = model.generation_config.eos_token_id = 2
model.config.vocab_size = 16000
optimizer, scaler = torch.optim.Adam(model.parameters(), lr=5e-5), torch.cuda.amp.GradScaler()
for step in range(6):
    pixels, labels = torch.randn(12, 3, 384, 384, device="cuda"), torch.randint(3, 16000, (12, 48), device="cuda")
    labels[:, 40:] = -100
    with torch.cuda.amp.autocast():
        loss = model(pixel_values=pixels, labels=labels).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
model.eval()
with torch.no_grad(), torch.cuda.amp.autocast():
    model(pixel_values=pixels, labels=labels)
    print(model.generate(pixels, num_beams=4, max_new_tokens=40, min_new_tokens=40, early_stopping=True).shape)
