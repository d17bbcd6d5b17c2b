"""Texts of many lengths under expandable segments: an encoder and decoder, teacher forcing, Adam with fused=True, gradients kept as zeros, a validation."""
import os
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)
model = nn.Transformer(768, 12, 6, 6, 3072, batch_first=True, dropout=0.1).cuda()
words, head = nn.Embedding(16000, 768).cuda(), nn.Linear(768, 16000).cuda()
params = [*model.parameters(), *words.parameters(), *head.parameters()]
optimizer = torch.optim.Adam(params, lr=1e-4, fused=True)


def loss_of(n, m):
    a, b = torch.randint(1, 16000, (24, n), device="cuda"), torch.randint(1, 16000, (24, m + 1), device="cuda")
    pad = torch.arange(n, device="cuda")[None] >= torch.randint(n // 2, n + 1, (24, 1), device="cuda")
    out = model(words(a), words(b[:, :-1]), tgt_mask=nn.Transformer.generate_square_subsequent_mask(m, device="cuda"), src_key_padding_mask=pad, memory_key_padding_mask=pad, tgt_is_causal=True)
    return F.cross_entropy(head(out).flatten(0, 1), b[:, 1:].flatten())


for step in range(10):
    n, m = random.randint(40, 500), random.randint(40, 400)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        loss = loss_of(n, m)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
model.eval()
with torch.no_grad():
    print(loss.item(), loss_of(512, 256).item())
