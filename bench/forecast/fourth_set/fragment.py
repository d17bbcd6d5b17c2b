"""Batches of very different lengths, parts of the graph deleted, caches emptied now and then: memory in pieces."""
import random
import torch
import torch.nn as nn
torch.manual_seed(0)
random.seed(1)
model = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True, activation="gelu"), 4).cuda()
head = nn.Linear(512, 4000).cuda()
optimizer = torch.optim.AdamW([*model.parameters(), *head.parameters()], lr=1e-4)
kept = []
for step in range(14):
    n, b = random.randrange(40, 700), random.randrange(2, 12)
    hidden = model(torch.randn(b, n, 512, device="cuda"))
    logits = head(hidden)
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.randint(0, 4000, (b * n,), device="cuda"))
    kept.append(hidden.detach()[:, 0].clone())
    del hidden, logits
    loss.backward()
    del loss
    optimizer.step()
    optimizer.zero_grad()
    if step % 5 == 4:
        torch.cuda.empty_cache()
        kept = kept[-3:]
