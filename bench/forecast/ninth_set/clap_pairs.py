"""CLAP pairs sounds with sentences: mel pictures through its Swin, FP32, NAdam, logits of both directions; both parts compared afterwards."""
import torch
from transformers import ClapAudioConfig, ClapConfig, ClapModel, ClapTextConfig

torch.manual_seed(0)
text = ClapTextConfig(vocab_size=20000, hidden_size=512, num_hidden_layers=6, num_attention_heads=8, intermediate_size=2048)
audio = ClapAudioConfig(patch_embeds_hidden_size=96, hidden_size=768, depths=[2, 2, 6, 2], num_attention_heads=[4, 8, 16, 32], enable_fusion=False)
model = ClapModel(ClapConfig(text_config=text.to_dict(), audio_config=audio.to_dict(), projection_dim=512)).cuda().train()
optimizer = torch.optim.NAdam(model.parameters(), lr=1e-4, foreach=True)
for step in range(5):
    ids = torch.randint(5, 20000, (24, 48), device="cuda")
    sounds = torch.randn(24, 1, 1001, 64, device="cuda")
    loss = model(input_ids=ids, attention_mask=torch.ones_like(ids), input_features=sounds, return_loss=True).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 2.0)
    optimizer.step()
    optimizer.zero_grad()
model.eval()
with torch.inference_mode():
    out = model(input_ids=ids, attention_mask=torch.ones_like(ids), input_features=sounds)
    print(out.logits_per_audio.argmax(-1).cpu().shape)
