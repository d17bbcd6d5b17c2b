"""transformers' T5Gemma: encoder and decoder with windows and soft caps, eager attention, FP32 weights by autocast, then words by beams."""
import torch
from transformers import T5GemmaConfig, T5GemmaForConditionalGeneration, T5GemmaModuleConfig
torch.manual_seed(0)
part = dict(vocab_size=17003, hidden_size=320, intermediate_size=1000, num_hidden_layers=4, num_attention_heads=5, num_key_value_heads=5, head_dim=64, sliding_window=90, query_pre_attn_scalar=64)
model = T5GemmaForConditionalGeneration(T5GemmaConfig(encoder=T5GemmaModuleConfig(**part), decoder=T5GemmaModuleConfig(**part), vocab_size=17003, attn_implementation="eager")).cuda()
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
for n in (301, 222, 301, 170):
    ids, labels = torch.randint(3, 17003, (5, n), device="cuda"), torch.randint(3, 17003, (5, 133), device="cuda")
    mask = torch.ones_like(ids)
    mask[:, -20:] = 0
    with torch.autocast("cuda", torch.bfloat16):
        loss = model(input_ids=ids, attention_mask=mask, labels=labels).loss
    loss.backward()
    torch.nn.utils.clip_grad_value_(model.parameters(), 0.5)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
model.eval()
with torch.no_grad():
    print(model.generate(input_ids=ids, attention_mask=mask, max_new_tokens=21, num_beams=2, do_sample=False, eos_token_id=None).shape)
