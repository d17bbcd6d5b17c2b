"""Qwen 2 Audio hears: bf16, the audio tower trained with the rest, SGD with momentum, then a greedy answer."""
import torch
from transformers import Qwen2AudioConfig, Qwen2AudioForConditionalGeneration

torch.manual_seed(0)
config = Qwen2AudioConfig(audio_config=dict(d_model=512, encoder_layers=6, encoder_attention_heads=8, encoder_ffn_dim=2048, num_mel_bins=128, max_source_positions=1500), text_config=dict(model_type="qwen2", vocab_size=20000, hidden_size=1024, intermediate_size=2816, num_hidden_layers=8, num_attention_heads=16, num_key_value_heads=4, pad_token_id=0, eos_token_id=2), audio_token_index=19990)
with torch.device("cuda"):
    model = Qwen2AudioForConditionalGeneration(config).to(torch.bfloat16)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, nesterov=True)
mask = torch.zeros(2, 3000, dtype=torch.long)
mask[0, :3000] = 1
mask[1, :1800] = 1
after = lambda n: ((n - 1) // 2 + 1 - 2) // 2 + 1
for step in range(5):
    rows = [torch.cat([torch.randint(5, 19000, (10,)), torch.full((int(after(n)),), 19990), torch.randint(5, 19000, (60,))]) for n in mask.sum(1)]
    most = max(map(len, rows))
    ids = torch.stack([torch.nn.functional.pad(r, (most - len(r), 0)) for r in rows]).cuda()
    batch = dict(input_ids=ids, attention_mask=ids.ne(0).long(), input_features=torch.randn(2, 128, 3000, device="cuda", dtype=torch.bfloat16), feature_attention_mask=mask.cuda())
    loss = model(**batch, labels=ids.masked_fill((ids == 0) | (ids == 19990), -100), use_cache=False).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.no_grad():
    model.generate(**batch, max_new_tokens=16, min_new_tokens=16, do_sample=False)
