"""SpeechT5 learns to speak: words to spectrograms with guided attention, fp16 autocast with GradScaler, RAdam."""
import torch
from transformers import SpeechT5Config, SpeechT5ForTextToSpeech

torch.manual_seed(0)
config = SpeechT5Config(vocab_size=81, hidden_size=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048, decoder_layers=4, decoder_ffn_dim=2048, decoder_attention_heads=8, speech_decoder_prenet_units=256, use_guided_attention_loss=True)
model = SpeechT5ForTextToSpeech(config).cuda().train()
optimizer = torch.optim.RAdam(model.parameters(), lr=1e-4)
scaler = torch.amp.GradScaler("cuda", init_scale=1024)
for step in range(5):
    words = torch.randint(4, 80, (6, 150), device="cuda")
    mask = torch.ones_like(words)
    mask[3:, 120:] = 0
    sound = torch.randn(6, 400, 80, device="cuda")
    sound[3:, 320:] = -100.0
    with torch.autocast("cuda", dtype=torch.float16):
        loss = model(input_ids=words, attention_mask=mask, labels=sound, speaker_embeddings=torch.randn(6, 512, device="cuda")).loss
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
print(loss.item())
