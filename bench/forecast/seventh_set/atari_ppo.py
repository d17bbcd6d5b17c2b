"""PPO as one file does it for pictures: environments of NumPy on the host, rollouts on the card in bytes, generalised advantages, minibatches of a
shuffled NumPy index, rates annealed."""
import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical
rng = np.random.default_rng(0)
torch.manual_seed(0)
N, T = 16, 64
class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        init = lambda l, s=2 ** 0.5: (nn.init.orthogonal_(l.weight, s), nn.init.zeros_(l.bias), l)[-1]
        self.net = nn.Sequential(init(nn.Conv2d(4, 32, 8, 4)), nn.ReLU(), init(nn.Conv2d(32, 64, 4, 2)), nn.ReLU(), init(nn.Conv2d(64, 64, 3, 1)), nn.ReLU(), nn.Flatten(), init(nn.Linear(3136, 512)), nn.ReLU())
        self.actor, self.critic = init(nn.Linear(512, 6), 0.01), init(nn.Linear(512, 1), 1)
    def forward(self, x, action=None):
        h = self.net(x / 255.0)
        p = Categorical(logits=self.actor(h))
        action = p.sample() if action is None else action
        return action, p.log_prob(action), p.entropy(), self.critic(h).flatten()
agent = Agent().cuda()
optimizer = torch.optim.Adam(agent.parameters(), 2.5e-4, eps=1e-5)
obs = torch.zeros((T, N, 4, 84, 84), device="cuda")
actions, logps, rewards, dones, values = (torch.zeros((T, N), device="cuda") for _ in range(5))
state, done = torch.Tensor(rng.integers(0, 255, (N, 4, 84, 84))).cuda(), torch.zeros(N).cuda()
for update in range(2):
    optimizer.param_groups[0]["lr"] = 2.5e-4 * (1 - update / 2)
    for t in range(T):
        obs[t], dones[t] = state, done
        with torch.no_grad():
            action, logps[t], _, values[t] = agent(state)
        actions[t] = action
        moved = action.cpu().numpy()
        rewards[t] = torch.tensor((moved == 2).astype(np.float32)).cuda()
        state, done = torch.Tensor(rng.integers(0, 255, (N, 4, 84, 84))).cuda(), torch.Tensor(rng.random(N) < 0.02).cuda()
    with torch.no_grad():
        after, advantages, last = agent(state)[3], torch.zeros_like(rewards), 0
        for t in reversed(range(T)):
            alive = 1 - (done if t == T - 1 else dones[t + 1])
            delta = rewards[t] + 0.99 * (after if t == T - 1 else values[t + 1]) * alive - values[t]
            advantages[t] = last = delta + 0.99 * 0.95 * alive * last
    flat = obs.reshape(-1, 4, 84, 84), logps.flatten(), actions.flatten(), advantages.flatten(), (advantages + values).flatten(), values.flatten()
    index, clipped = np.arange(N * T), []
    for epoch in range(3):
        rng.shuffle(index)
        for s in range(0, N * T, 256):
            o, lp, a, adv, ret, v = (x[index[s:s + 256]] for x in flat)
            _, new, entropy, value = agent(o, a.long())
            ratio = (new - lp).exp()
            with torch.no_grad():
                clipped.append(((ratio - 1).abs() > 0.1).float().mean().item())
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            policy = torch.max(-adv * ratio, -adv * ratio.clamp(0.9, 1.1)).mean()
            loss = policy - 0.01 * entropy.mean() + 0.5 * torch.max((value - ret) ** 2, (v + (value - v).clamp(-0.1, 0.1) - ret) ** 2).mean() * 0.5
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
    print(loss.item(), np.mean(clipped))
