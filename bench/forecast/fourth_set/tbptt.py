"""A language model of GRUs by truncated backpropagation: states go on from batch to batch, the loss tells when to anneal."""
import torch
import torch.nn as nn
torch.manual_seed(0)
words = 10000
embed, rnn, out = nn.Embedding(words, 512).cuda(), nn.GRU(512, 512, 2, dropout=0.3).cuda(), nn.Linear(512, words).cuda()
out.weight = embed.weight
params = [*embed.parameters(), *rnn.parameters(), out.bias]
optimizer = torch.optim.SGD(params, lr=20.0)
text = torch.randint(0, words, (35 * 6 + 1, 40)).cuda()
best = float("inf")
for epoch in range(2):
    state, total = None, 0.0
    for i in range(0, 35 * 6, 35):
        if state is not None:
            state = state.detach()
        y, state = rnn(nn.functional.dropout(embed(text[i:i + 35]), 0.3), state)
        loss = nn.functional.cross_entropy(out(y).flatten(0, 1), text[i + 1:i + 36].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(params, 0.25)
        optimizer.step()
        total += loss.item()
    if total < best:
        best = total
    else:
        optimizer.param_groups[0]["lr"] /= 4
