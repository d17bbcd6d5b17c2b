"""SeamlessM4T v2 speech to text: a Conformer adapter, FP32, Adamax, two lengths, then two beams."""
import torch
from transformers import SeamlessM4Tv2Config, SeamlessM4Tv2ForSpeechToText

torch.manual_seed(0)
config = SeamlessM4Tv2Config(vocab_size=16000, hidden_size=512, speech_encoder_layers=6, speech_encoder_attention_heads=8, speech_encoder_intermediate_size=2048, decoder_layers=6, decoder_attention_heads=8, decoder_ffn_dim=2048, encoder_layers=2, encoder_attention_heads=8, encoder_ffn_dim=2048, speech_encoder_layerdrop=0.0, decoder_layerdrop=0.0)
model = SeamlessM4Tv2ForSpeechToText(config).cuda()
optimizer = torch.optim.Adamax(model.parameters(), lr=1e-4)
for n in (400, 640, 400, 640):
    sound = torch.randn(8, n, 160, device="cuda")
    labels = torch.randint(5, 16000, (8, 50), device="cuda")
    loss = model(input_features=sound, attention_mask=torch.ones(8, n, dtype=torch.long, device="cuda"), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    from transformers.generation.utils import GenerationMixin
    print(GenerationMixin.generate(model, inputs=sound, attention_mask=torch.ones(8, n, dtype=torch.long, device="cuda"), num_beams=2, max_new_tokens=24, min_new_tokens=24, decoder_input_ids=torch.full((8, 1), 3, device="cuda")).shape)
