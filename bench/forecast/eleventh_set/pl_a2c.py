"""Advantage actor-critic over 64 worlds that live on the card: a GRU policy, generalised advantages, RMSprop, entropy."""
import torch
from torch import nn
from torch.distributions import Categorical

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 5, 2), nn.ReLU(), nn.Conv2d(32, 64, 3, 2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(512), nn.ReLU())
        self.memory, self.actor, self.critic = nn.GRUCell(512, 512), nn.Linear(512, 6), nn.Linear(512, 1)

    def forward(self, seen, h):
        h = self.memory(self.body(seen), h)
        return Categorical(logits=self.actor(h)), self.critic(h).squeeze(-1), h


policy = Policy().cuda()
policy(torch.zeros(1, 4, 42, 42, device="cuda"), torch.zeros(1, 512, device="cuda"))
optimizer = torch.optim.RMSprop(policy.parameters(), lr=7e-4, alpha=0.99, eps=1e-5)
world, h = torch.rand(64, 4, 42, 42, device="cuda"), torch.zeros(64, 512, device="cuda")
for update in range(5):
    logs, values, rewards, alive, entropies = [], [], [], [], []
    h = h.detach()
    for t in range(20):
        spread, value, h = policy(world, h)
        action = spread.sample()
        world = (world + 0.05 * torch.randn_like(world) + 0.01 * action.view(-1, 1, 1, 1)).clamp(0, 1)
        done = torch.rand(64, device="cuda") < 0.02
        h = h * (~done).float()[:, None]
        logs.append(spread.log_prob(action))
        entropies.append(spread.entropy())
        values.append(value)
        rewards.append(world.mean((1, 2, 3)))
        alive.append((~done).float())
    with torch.no_grad():
        last = policy(world, h)[1]
    advantage, found = torch.zeros(64, device="cuda"), []
    for t in reversed(range(20)):
        after = last if t == 19 else values[t + 1].detach()
        advantage = rewards[t] + 0.99 * alive[t] * after - values[t].detach() + 0.99 * 0.95 * alive[t] * advantage
        found.insert(0, advantage)
    found, values = torch.stack(found), torch.stack(values)
    loss = -(torch.stack(logs) * found).mean() + 0.5 * (values - (found + values.detach())).pow(2).mean() - 0.01 * torch.stack(entropies).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(policy.parameters(), 0.5)
    optimizer.step()
print(loss.item())
