"""A conditional random field over a bidirectional GRU: sums over paths in a loop, then the best path."""
import torch
import torch.nn as nn
torch.manual_seed(0)
embed, rnn, out = nn.Embedding(9000, 256).cuda(), nn.GRU(256, 256, batch_first=True, bidirectional=True).cuda(), nn.Linear(512, 24).cuda()
move = nn.Parameter(torch.randn(24, 24, device="cuda") * 0.1)
optimizer = torch.optim.Adam([*embed.parameters(), *rnn.parameters(), *out.parameters(), move], lr=1e-3)
for step in range(5):
    ids, tags = torch.randint(0, 9000, (64, 80), device="cuda"), torch.randint(0, 24, (64, 80), device="cuda")
    score = out(rnn(embed(ids))[0])
    alpha = score[:, 0]
    for t in range(1, 80):
        alpha = torch.logsumexp(alpha.unsqueeze(2) + move, 1) + score[:, t]
    path = score.gather(2, tags.unsqueeze(2)).sum((1, 2)) + move[tags[:, :-1], tags[:, 1:]].sum(1)
    loss = (torch.logsumexp(alpha, 1) - path).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    best, back = score[:, 0], []
    for t in range(1, 80):
        high, which = (best.unsqueeze(2) + move).max(1)
        best = high + score[:, t]
        back.append(which)
    tag = best.argmax(1)
    for which in reversed(back):
        tag = which.gather(1, tag[:, None]).squeeze(1)
