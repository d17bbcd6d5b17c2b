"""Voxtral hears: an audio encoder, words in between, sound features put in by masked_scatter, LoRA by hand on q and v, checkpointed, bf16, then 16 words said."""
import torch
import torch.nn as nn
from transformers import VoxtralConfig, VoxtralForConditionalGeneration

torch.manual_seed(0)
hears = dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=6, num_attention_heads=8, num_mel_bins=128, max_source_positions=1500)
says = dict(model_type="llama", vocab_size=24000, hidden_size=1024, intermediate_size=3072, num_hidden_layers=8, num_attention_heads=8, num_key_value_heads=4, head_dim=128, eos_token_id=None, pad_token_id=0)
model = VoxtralForConditionalGeneration(VoxtralConfig(audio_config=hears, text_config=says, audio_token_id=24)).to("cuda", torch.bfloat16).requires_grad_(False)


class Low(nn.Module):
    def __init__(self, base, r=16):
        super().__init__()
        self.base = base
        self.a, self.b = nn.Parameter(torch.randn(r, base.in_features, device="cuda") * 0.02), nn.Parameter(torch.zeros(base.out_features, r, device="cuda"))

    def forward(self, x):
        return self.base(x) + (x @ self.a.to(x.dtype).T) @ self.b.to(x.dtype).T


for name, module in list(model.named_modules()):
    for part in ("q_proj", "v_proj"):
        if "language_model" in name and isinstance(getattr(module, part, None), nn.Linear):
            setattr(module, part, Low(getattr(module, part)))
model.train()
model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4)
sound = 3000 // 8
for step in range(4):
    ids = torch.randint(100, 24000, (4, sound + 64), device="cuda")
    ids[:, :sound] = 24
    labels = ids.clone()
    labels[:, :sound] = -100
    loss = model(input_ids=ids, input_features=torch.randn(4, 128, 3000, device="cuda", dtype=torch.bfloat16), labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
model.eval()
print(loss.item(), model.generate(input_ids=ids, input_features=torch.randn(4, 128, 3000, device="cuda", dtype=torch.bfloat16), max_new_tokens=16, do_sample=False).shape)
