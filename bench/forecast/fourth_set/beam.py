"""Beam search by hand over a recurrent decoder: states are sorted by the beams that win."""
import torch
import torch.nn as nn
torch.manual_seed(0)
words, size, beams, batch = 12000, 768, 5, 24
embed, rnn, out = nn.Embedding(words, size).cuda(), nn.GRU(size, size, 2, batch_first=True).cuda(), nn.Linear(size, words).cuda()
with torch.inference_mode():
    state = torch.randn(2, batch * beams, size, device="cuda")
    score = torch.full((batch, beams), -1e9, device="cuda")
    score[:, 0] = 0
    text = torch.zeros(batch * beams, 1, dtype=torch.long, device="cuda")
    rows = torch.arange(batch, device="cuda")[:, None] * beams
    for step in range(40):
        y, state = rnn(embed(text[:, -1:]), state)
        chance = torch.log_softmax(out(y[:, -1]).float(), -1).view(batch, beams, words)
        score, which = (score[:, :, None] + chance).flatten(1).topk(beams)
        origin = (rows + which // words).flatten()
        text = torch.cat([text[origin], (which % words).view(-1, 1)], 1)
        state = state[:, origin].contiguous()
