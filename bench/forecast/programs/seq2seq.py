"""Trains an encoder with a decoder: T5 on tokens, Whisper on sound."""
import argparse

import torch
from transformers import T5Config, T5ForConditionalGeneration, WhisperConfig, WhisperForConditionalGeneration

p = argparse.ArgumentParser()
p.add_argument("--model", default="t5", choices=["t5", "whisper"])
p.add_argument("--batch", type=int, default=8)
p.add_argument("--len", type=int, default=512)
p.add_argument("--target", type=int, default=128)
p.add_argument("--precision", default="bf16", choices=["bf16", "fp32"])
p.add_argument("--checkpoint", action="store_true")
p.add_argument("--steps", type=int, default=8)
a = p.parse_args()

torch.manual_seed(0)
if a.model == "t5":
    model = T5ForConditionalGeneration(T5Config(vocab_size=32128, d_model=768, d_kv=64, d_ff=2048, num_layers=8, num_heads=12, feed_forward_proj="gated-gelu",
                                                decoder_start_token_id=0))
else:
    model = WhisperForConditionalGeneration(WhisperConfig(d_model=512, encoder_layers=6, decoder_layers=6, encoder_attention_heads=8, decoder_attention_heads=8,
                                                          encoder_ffn_dim=2048, decoder_ffn_dim=2048))
model.to("cuda").train()
if a.checkpoint:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(a.steps):
    labels = torch.randint(3, 30000, (a.batch, a.target))
    if a.model == "t5":
        lengths = torch.randint(a.len // 2, a.len + 1, (a.batch,))
        mask = (torch.arange(a.len) < lengths[:, None]).long()
        batch = dict(input_ids=torch.randint(3, 30000, (a.batch, a.len)) * mask, attention_mask=mask)
    else:
        batch = dict(input_features=torch.randn(a.batch, 80, 3000))
    batch = {k: v.to("cuda") for k, v in {**batch, "labels": labels}.items()}
    with torch.autocast("cuda", torch.bfloat16, enabled=a.precision == "bf16"):
        loss = model(**batch).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(step, loss.item(), flush=True)
