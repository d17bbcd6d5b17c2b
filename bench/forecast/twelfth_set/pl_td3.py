"""TD3 with a replay of 2 million steps on the card, written in a ring, drawn by index, twin critics, delayed policy, targets by lerp, CPU environments."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
N, S, A = 2_000_000, 120, 24
store = {"s": torch.empty(N, S, device="cuda"), "a": torch.empty(N, A, device="cuda"), "r": torch.empty(N, 1, device="cuda"), "n": torch.empty(N, S, device="cuda"), "d": torch.empty(N, 1, dtype=torch.bool, device="cuda")}


def network(i, o):
    return nn.Sequential(nn.Linear(i, 1024), nn.LayerNorm(1024), nn.ReLU(), nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.ReLU(), nn.Linear(1024, o)).cuda()


actor, first, second = network(S, A), network(S + A, 1), network(S + A, 1)
old_actor, old_first, old_second = (copy.deepcopy(m).requires_grad_(False) for m in (actor, first, second))
a_opt = torch.optim.Adam(actor.parameters(), lr=3e-4)
c_opt = torch.optim.Adam([*first.parameters(), *second.parameters()], lr=3e-4)
written, state = 0, torch.randn(4096, S)
for turn in range(12):
    with torch.no_grad():
        action = torch.tanh(actor(state.cuda(non_blocking=True))).cpu()
    new, reward, done = torch.randn(4096, S), torch.randn(4096, 1), torch.rand(4096, 1) < 0.01
    at = torch.arange(written, written + 4096, device="cuda") % N
    for k, v in zip("sarnd", (state, action, reward, new, done)):
        store[k][at] = v.cuda()
    written, state = written + 4096, new
    b = torch.randint(0, written, (8192,), device="cuda")
    s, a, r, n, d = (store[k][b] for k in "sarnd")
    with torch.no_grad():
        noise = (torch.randn_like(a) * 0.2).clamp(-0.5, 0.5)
        after = (torch.tanh(old_actor(n)) + noise).clamp(-1, 1)
        wanted = r + 0.99 * ~d * torch.minimum(old_first(torch.cat([n, after], 1)), old_second(torch.cat([n, after], 1)))
    x = torch.cat([s, a], 1)
    loss = F.mse_loss(first(x), wanted) + F.mse_loss(second(x), wanted)
    c_opt.zero_grad()
    loss.backward()
    c_opt.step()
    if turn % 2:
        worth = -first(torch.cat([s, torch.tanh(actor(s))], 1)).mean()
        a_opt.zero_grad()
        worth.backward()
        a_opt.step()
        with torch.no_grad():
            for old, now in ((old_actor, actor), (old_first, first), (old_second, second)):
                for p, q in zip(old.parameters(), now.parameters()):
                    p.lerp_(q, 0.005)
print(loss.item())
