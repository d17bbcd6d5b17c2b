"""Moonshine: raw sound to text, FP32 with tf32, RAdam, clips of four seconds to ten, then greedy transcripts in fp16."""
import torch
from transformers import MoonshineConfig, MoonshineForConditionalGeneration

torch.manual_seed(0)
torch.backends.cuda.matmul.allow_tf32 = True
config = MoonshineConfig(vocab_size=16000, hidden_size=416, intermediate_size=1664, encoder_num_hidden_layers=8, decoder_num_hidden_layers=8, encoder_num_attention_heads=8, decoder_num_attention_heads=8, encoder_num_key_value_heads=8, decoder_num_key_value_heads=8, pad_token_id=2)
model = MoonshineForConditionalGeneration(config).cuda()
optimizer = torch.optim.RAdam(model.parameters(), lr=2e-4)
for seconds in (10, 4, 7, 10, 5):
    sound = torch.randn(12, seconds * 16000, device="cuda")
    labels = torch.randint(3, 16000, (12, 6 * seconds), device="cuda")
    loss = model(input_values=sound, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
model.half().eval()
with torch.no_grad():
    print(model.generate(input_values=sound.half(), max_new_tokens=40, min_new_tokens=40, do_sample=False).shape)
