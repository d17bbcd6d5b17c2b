"""GradCache: two towers, representations of 8 chunks without a graph, the loss of all pairs, then each chunk again with its gradient."""
import torch
import torch.nn as nn
from transformers import BertConfig, BertModel
torch.manual_seed(0)
def tower():
    return BertModel(BertConfig(vocab_size=8003, hidden_size=312, num_hidden_layers=4, num_attention_heads=12, intermediate_size=1200)).cuda()
q, p = tower(), tower()
optimizer = torch.optim.AdamW([*q.parameters(), *p.parameters()], 2e-5)
for step in range(3):
    texts = [torch.randint(0, 8003, (256, n), device="cuda") for n in (32, 156)]
    masks = [torch.ones_like(t) for t in texts]
    states, reps = [], []
    for model, t, m in zip((q, p), texts, masks):
        rows = []
        for a, b in zip(t.split(32), m.split(32)):
            states.append((torch.get_rng_state(), torch.cuda.get_rng_state()))
            with torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
                rows.append(model(a, b).last_hidden_state[:, 0].float())
        reps.append(torch.cat(rows).requires_grad_())
    scores = nn.functional.normalize(reps[0], dim=1) @ nn.functional.normalize(reps[1], dim=1).T * 20
    loss = nn.functional.cross_entropy(scores, torch.arange(256, device="cuda"))
    loss.backward()
    grads = [r.grad for r in reps]
    n = 0
    for model, t, m, g in zip((q, p), texts, masks, grads):
        for a, b, c in zip(t.split(32), m.split(32), g.split(32)):
            torch.set_rng_state(states[n][0])
            torch.cuda.set_rng_state(states[n][1])
            n += 1
            with torch.autocast("cuda", torch.bfloat16):
                out = model(a, b).last_hidden_state[:, 0].float()
            (out * c).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
