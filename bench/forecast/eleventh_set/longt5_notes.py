"""LongT5 with global tokens over 2048 words, bf16 weights, transformers' Adafactor, summaries by three beams between steps."""
import torch
from transformers import LongT5Config, LongT5ForConditionalGeneration
from transformers.optimization import Adafactor

torch.manual_seed(0)
config = LongT5Config(vocab_size=16000, d_model=512, d_kv=64, d_ff=1536, num_layers=5, num_decoder_layers=5, num_heads=8, encoder_attention_type="transient-global", local_radius=127, global_block_size=16, feed_forward_proj="gated-gelu", decoder_start_token_id=0, pad_token_id=0, eos_token_id=1)
model = LongT5ForConditionalGeneration(config).to("cuda", torch.bfloat16)
optimizer = Adafactor(model.parameters(), scale_parameter=True, relative_step=True, warmup_init=True, lr=None)
for step in range(4):
    model.train()
    ids = torch.randint(2, 16000, (3, 2048), device="cuda")
    mask = torch.ones_like(ids)
    mask[1, 1500:] = 0
    mask[2, 1800:] = 0
    labels = torch.randint(2, 16000, (3, 160), device="cuda")
    labels[:, 120:] = -100
    loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if step == 1:
        model.eval()
        with torch.no_grad():
            print(model.generate(input_ids=ids, attention_mask=mask, num_beams=3, max_new_tokens=20, min_new_tokens=20).shape)
print(loss.item())
