"""Sentence embeddings by mean pooling, in-batch negatives, gradients of big batches cached (GradCache)."""
import torch
import torch.nn.functional as F
from transformers import MPNetConfig, MPNetModel
torch.manual_seed(0)
model = MPNetModel(MPNetConfig(vocab_size=8000, hidden_size=384, num_hidden_layers=6, num_attention_heads=6, intermediate_size=1536)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=2e-5)
def embed(ids, mask):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    weight = mask.unsqueeze(-1).float()
    return F.normalize((hidden.float() * weight).sum(1) / weight.sum(1).clamp(min=1e-6), dim=-1)
for step in range(3):
    parts = []
    for _ in range(8):
        ids = torch.randint(5, 8000, (2 * 32, 96), device="cuda")
        parts.append((ids, torch.ones_like(ids)))
    states, vectors = [], []
    with torch.no_grad():
        for ids, mask in parts:
            states.append(torch.cuda.get_rng_state())
            vectors.append(embed(ids, mask))
    every = torch.cat(vectors).requires_grad_()
    left, right = every.view(-1, 2, every.shape[-1]).unbind(1)
    F.cross_entropy(left @ right.T / 0.05, torch.arange(len(left), device="cuda")).backward()
    for (ids, mask), state, gradient in zip(parts, states, every.grad.split(64)):
        torch.cuda.set_rng_state(state)
        (embed(ids, mask) * gradient).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
