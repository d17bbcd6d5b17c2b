"""Rainbow on vectors: a replay on the card drawn by priorities, three-step returns, 51 atoms, noisy layers, duelling heads, a target that is copied."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
STATES, ACTIONS, ATOMS, ENVS, N, SIZE = 128, 18, 51, 256, 3, 200_000


class Noisy(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.mu, self.sigma = nn.Parameter(torch.empty(b, a).uniform_(-1 / a**0.5, 1 / a**0.5)), nn.Parameter(torch.full((b, a), 0.5 / a**0.5))
        self.bias, self.bias_sigma = nn.Parameter(torch.zeros(b)), nn.Parameter(torch.full((b,), 0.5 / a**0.5))

    def forward(self, x):
        if not self.training:
            return F.linear(x, self.mu, self.bias)
        e, f = (t.sign() * t.abs().sqrt() for t in (torch.randn(self.mu.shape[1], device=x.device), torch.randn(self.mu.shape[0], device=x.device)))
        return F.linear(x, self.mu + self.sigma * torch.outer(f, e), self.bias + self.bias_sigma * f)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(STATES, 1024), nn.LayerNorm(1024), nn.ReLU(), nn.Linear(1024, 1024), nn.LayerNorm(1024), nn.ReLU())
        self.value, self.gain = nn.Sequential(Noisy(1024, 512), nn.ReLU(), Noisy(512, ATOMS)), nn.Sequential(Noisy(1024, 512), nn.ReLU(), Noisy(512, ACTIONS * ATOMS))

    def forward(self, s):
        h = self.body(s)
        gain = self.gain(h).unflatten(-1, (ACTIONS, ATOMS))
        return self.value(h)[:, None] + gain - gain.mean(1, keepdim=True)


support = torch.linspace(-10, 10, ATOMS, device="cuda")
net, target = Net().cuda(), Net().cuda()
target.load_state_dict(net.state_dict())
optimizer = torch.optim.Adam(net.parameters(), lr=6e-5, eps=1.5e-4)
memory = {"s": torch.zeros(SIZE, STATES, device="cuda"), "next": torch.zeros(SIZE, STATES, device="cuda"), "a": torch.zeros(SIZE, dtype=torch.long, device="cuda"), "r": torch.zeros(SIZE, device="cuda"), "done": torch.zeros(SIZE, dtype=torch.bool, device="cuda")}
weights = torch.zeros(SIZE, device="cuda")
world = torch.randn(ACTIONS, STATES, device="cuda") * 0.1
state, at, filled, recent = torch.randn(ENVS, STATES, device="cuda"), 0, 0, []


def learn(beta):
    chosen = torch.multinomial(weights[:filled].pow(0.5), 512, replacement=True)
    chance = weights[chosen].pow(0.5) / weights[:filled].pow(0.5).sum()
    s, following, a, r, done = (memory[k][chosen] for k in ("s", "next", "a", "r", "done"))
    with torch.no_grad():
        best = (net(following).softmax(-1) * support).sum(-1).argmax(1)
        p = target(following).softmax(-1)[torch.arange(512, device="cuda"), best]
        where = ((r[:, None] + 0.99**N * (~done)[:, None] * support).clamp(-10, 10) + 10) / 0.4
        low, high = where.floor().long(), where.ceil().long()
        goal = torch.zeros_like(p)
        goal.scatter_add_(1, low, p * (high.float() - where + (low == high).float()))
        goal.scatter_add_(1, high, p * (where - low.float()))
    scores = net(s)[torch.arange(512, device="cuda"), a].log_softmax(-1)
    each = -(goal * scores).sum(1)
    bias = (filled * chance).pow(-beta)
    (each * bias / bias.max()).mean().backward()
    nn.utils.clip_grad_norm_(net.parameters(), 10.0)
    optimizer.step()
    optimizer.zero_grad()
    weights[chosen] = each.detach() + 1e-6
    return each.mean()


for step in range(60):
    with torch.no_grad():
        action = (net(state).softmax(-1) * support).sum(-1).argmax(1)
    after = 0.95 * state + world[action] + 0.1 * torch.randn_like(state)
    reward, done = (after[:, 0] > 0).float(), torch.rand(ENVS, device="cuda") < 0.02
    recent.append((state, action, reward, done))
    if len(recent) == N:
        s, a = recent[0][:2]
        r = sum(0.99**k * e[2] for k, e in enumerate(recent))
        places = torch.arange(at, at + ENVS, device="cuda") % SIZE
        for key, value in zip(("s", "next", "a", "r", "done"), (s, after, a, r, torch.stack([e[3] for e in recent]).any(0))):
            memory[key][places] = value
        weights[places] = weights.max().clamp_min(1.0)
        at, filled = at + ENVS, min(filled + ENVS, SIZE)
        recent.pop(0)
    state = torch.where(done[:, None], torch.randn_like(state), after)
    if filled >= 2048:
        loss = learn(0.4 + 0.6 * step / 60)
        if step % 20 == 0:
            target.load_state_dict(net.state_dict())
print(loss.item())
