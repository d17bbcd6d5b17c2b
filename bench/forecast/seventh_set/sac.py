"""Soft actor-critic: a memory on the host, five networks, a temperature that is learned, targets by Polyak, the actor every other step."""
import copy
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
rng = np.random.default_rng(0)
torch.manual_seed(0)
O, A = 111, 8
mlp = lambda i, o: nn.Sequential(nn.Linear(i, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, o)).cuda()
actor, q1, q2 = mlp(O, 2 * A), mlp(O + A, 1), mlp(O + A, 1)
t1, t2 = copy.deepcopy(q1), copy.deepcopy(q2)
log_alpha = torch.zeros(1, requires_grad=True, device="cuda")
qo = torch.optim.Adam([*q1.parameters(), *q2.parameters()], 1e-3)
ao, to = torch.optim.Adam(actor.parameters(), 3e-4), torch.optim.Adam([log_alpha], 1e-3)
def act(s):
    mean, log_std = actor(s).chunk(2, -1)
    normal = torch.distributions.Normal(mean, (-5 + 3.5 * (torch.tanh(log_std) + 1)).exp())
    x = normal.rsample()
    y = torch.tanh(x)
    return y, (normal.log_prob(x) - torch.log(1 - y.pow(2) + 1e-6)).sum(1, keepdim=True)
memory = {"s": np.zeros((5000, O), np.float32), "a": np.zeros((5000, A), np.float32), "r": np.zeros((5000, 1), np.float32), "n": np.zeros((5000, O), np.float32), "d": np.zeros((5000, 1), np.float32)}
state, filled = rng.standard_normal((1, O)).astype(np.float32), 0
for step in range(400):
    if step < 300:
        action = rng.uniform(-1, 1, (1, A)).astype(np.float32)
    else:
        with torch.no_grad():
            action = act(torch.from_numpy(state).cuda())[0].cpu().numpy()
    after = rng.standard_normal((1, O)).astype(np.float32)
    for k, v in zip("sarnd", (state, action, [[float(action.mean())]], after, [[0.0]])):
        memory[k][filled % 5000] = np.asarray(v)[0]
    state, filled = after, filled + 1
    if step < 300:
        continue
    pick = rng.integers(0, filled, 1024)
    s, a, r, n, d = (torch.from_numpy(memory[k][pick]).cuda() for k in "sarnd")
    with torch.no_grad():
        na, nlp = act(n)
        target = r + (1 - d) * 0.99 * (torch.min(t1(torch.cat([n, na], 1)), t2(torch.cat([n, na], 1))) - log_alpha.exp() * nlp)
    sa = torch.cat([s, a], 1)
    loss = F.mse_loss(q1(sa), target) + F.mse_loss(q2(sa), target)
    qo.zero_grad()
    loss.backward()
    qo.step()
    if step % 2 == 0:
        for _ in range(2):
            pi, lp = act(s)
            x = torch.cat([s, pi], 1)
            ao.zero_grad()
            (log_alpha.exp().detach() * lp - torch.min(q1(x), q2(x))).mean().backward()
            ao.step()
            to.zero_grad()
            (-log_alpha.exp() * (lp.detach() - A)).mean().backward()
            to.step()
    with torch.no_grad():
        for t, q in ((t1, q1), (t2, q2)):
            for a, b in zip(t.parameters(), q.parameters()):
                a.data.copy_(0.005 * b.data + 0.995 * a.data)
print(loss.item(), log_alpha.exp().item())
