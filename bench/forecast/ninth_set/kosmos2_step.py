"""KOSMOS-2 grounds words in pictures: one optimizer per part, fp16 weights kept in FP32 copies by hand, dynamic scale written by hand."""
import torch
from transformers import Kosmos2Config, Kosmos2ForConditionalGeneration

torch.manual_seed(0)
config = Kosmos2Config(text_config=dict(vocab_size=20000, embed_dim=768, layers=8, ffn_dim=3072, attention_heads=12, max_position_embeddings=1024), vision_config=dict(hidden_size=512, intermediate_size=2048, num_hidden_layers=8, num_attention_heads=8, image_size=224, patch_size=14), latent_query_num=64)
model = Kosmos2ForConditionalGeneration(config).half().cuda()
masters = [p.detach().clone().float().requires_grad_() for p in model.parameters()]
optimizers = [torch.optim.AdamW(masters[::2], lr=1e-4), torch.optim.Adagrad(masters[1::2], lr=1e-3)]
scale = 1024.0
for step in range(5):
    ids = torch.randint(4, 19000, (6, 160), device="cuda")
    spot = torch.zeros_like(ids)
    spot[:, 2:66] = 1
    loss = model(pixel_values=torch.randn(6, 3, 224, 224, device="cuda", dtype=torch.half), input_ids=ids, attention_mask=torch.ones_like(ids), image_embeds_position_mask=spot, labels=ids).loss
    (loss.float() * scale).backward()
    for m, p in zip(masters, model.parameters()):
        m.grad = None if p.grad is None else p.grad.float().div_(scale)
        p.grad = None
    for o in optimizers:
        o.step()
    with torch.no_grad():
        for m, p in zip(masters, model.parameters()):
            p.copy_(m)
