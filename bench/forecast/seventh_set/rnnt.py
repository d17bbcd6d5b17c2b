"""A transducer for speech: a bidirectional LSTM, words by GRU, a joint network over places and words (B x T x U x V) in fp16, the loss by anti-
diagonals in log space."""
import torch
import torch.nn as nn
torch.manual_seed(0)
V, D = 256, 320
enc, pre = nn.LSTM(80, D, 3, bidirectional=True, batch_first=True, dropout=0.1).cuda(), nn.GRU(D, D, batch_first=True).cuda()
words, a, b, out = nn.Embedding(V, D).cuda(), nn.Linear(2 * D, D).cuda(), nn.Linear(D, D).cuda(), nn.Linear(D, V).cuda()
params = [p for m in (enc, pre, words, a, b, out) for p in m.parameters()]
optimizer = torch.optim.AdamW(params, 3e-4)
def transducer(logp, y, tl, ul):
    B, T, U, _ = logp.shape
    blank, emit = logp[..., 0], logp[:, :, :-1].gather(3, y[:, None, :, None].expand(-1, T, -1, 1))[..., 0]
    rows = [torch.full((B, U), -1e30, device=logp.device)]
    rows[0][:, 0] = 0
    for n in range(1, T + U - 1):
        u = torch.arange(max(0, n - T + 1), min(n, U - 1) + 1, device=logp.device)
        t, prev = n - u, rows[-1]
        stay = torch.where(t > 0, prev[:, u] + blank[:, (t - 1).clamp(0), u], -1e30)
        move = torch.where(u > 0, prev[:, (u - 1).clamp(0)] + emit[:, t.clamp(max=T - 1), (u - 1).clamp(0)], -1e30)
        rows.append(torch.full((B, U), -1e30, device=logp.device).index_copy(1, u, torch.logaddexp(stay, move)))
    alpha = torch.stack(rows, 1)
    i = torch.arange(B, device=logp.device)
    return -(alpha[i, tl - 1 + ul, ul] + blank[i, tl - 1, ul]).mean()
for step in range(4):
    x, y = torch.randn(6, 240, 80, device="cuda"), torch.randint(1, V, (6, 28), device="cuda")
    tl, ul = torch.tensor([60, 55, 44, 60, 31, 58]).cuda(), torch.tensor([28, 20, 17, 25, 9, 28]).cuda()
    with torch.autocast("cuda", torch.float16):
        h = enc(x)[0][:, ::4]
        g = pre(words(torch.cat([torch.zeros(6, 1, dtype=torch.long, device="cuda"), y], 1)))[0]
        logp = out(torch.tanh(a(h)[:, :, None] + b(g)[:, None])).float().log_softmax(-1)
    loss = transducer(logp, y, tl, ul)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(params, 5.0)
    optimizer.step()
    print(loss.item())
