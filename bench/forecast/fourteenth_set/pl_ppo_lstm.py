"""PPO with an LSTM on 128 worlds that are stepped on the card: states kept and cleared at ends, minibatches of whole worlds, values clipped, stopped early by KL."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
W, T = 128, 64


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.eye = nn.Sequential(nn.Conv2d(1, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3, 1), nn.ReLU(), nn.Flatten(), nn.Linear(64 * 49, 512), nn.ReLU())
        self.memory, self.actor, self.critic = nn.LSTM(512, 128), nn.Linear(128, 6), nn.Linear(128, 1)

    def states(self, x, state, done):
        hidden = self.eye(x / 255.0)
        n = state[0].shape[1]
        hidden, done, kept = hidden.reshape((-1, n, 512)), done.reshape((-1, n)), []
        for h, d in zip(hidden, done):
            h, state = self.memory(h.unsqueeze(0), ((1.0 - d).view(1, -1, 1) * state[0], (1.0 - d).view(1, -1, 1) * state[1]))
            kept.append(h)
        return torch.flatten(torch.cat(kept), 0, 1), state

    def act(self, x, state, done, action=None):
        hidden, state = self.states(x, state, done)
        chances = torch.distributions.Categorical(logits=self.actor(hidden))
        action = chances.sample() if action is None else action
        return action, chances.log_prob(action), chances.entropy(), self.critic(hidden), state


agent = Agent().cuda()
optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
seen, acted, logs, rewards, ends, values = torch.zeros(T, W, 1, 84, 84, device="cuda"), *(torch.zeros(T, W, device="cuda") for _ in range(5))
picture, done = torch.randint(0, 256, (W, 1, 84, 84), device="cuda").float(), torch.zeros(W, device="cuda")
state = tuple(torch.zeros(1, W, 128, device="cuda") for _ in range(2))
for update in range(2):
    first = tuple(s.clone() for s in state)
    for t in range(T):
        seen[t], ends[t] = picture, done
        with torch.no_grad():
            action, log, _, value, state = agent.act(picture, state, done)
        values[t], acted[t], logs[t] = value.flatten(), action, log
        rewards[t] = (action == 2).float() - 0.1
        picture, done = torch.roll(picture, 3, -1), (torch.rand(W, device="cuda") < 0.02).float()
    with torch.no_grad():
        following = agent.critic(agent.states(picture, state, done)[0]).reshape(1, -1)
        gains, last = torch.zeros_like(rewards), 0
        for t in reversed(range(T)):
            left = 1.0 - (done if t == T - 1 else ends[t + 1])
            delta = rewards[t] + 0.99 * (following if t == T - 1 else values[t + 1]) * left - values[t]
            gains[t] = last = delta + 0.99 * 0.95 * left * last
        returns = gains + values
    flat = torch.arange(T * W).reshape(T, W)
    for epoch in range(3):
        for worlds in torch.randperm(W).split(32):
            rows = flat[:, worlds].ravel()
            _, new, entropy, value, _ = agent.act(seen.reshape(-1, 1, 84, 84)[rows], (first[0][:, worlds], first[1][:, worlds]), ends.reshape(-1)[rows], acted.long().reshape(-1)[rows])
            ratio = (new - logs.reshape(-1)[rows]).exp()
            g = gains.reshape(-1)[rows]
            g = (g - g.mean()) / (g.std() + 1e-8)
            policy = torch.max(-g * ratio, -g * ratio.clamp(0.9, 1.1)).mean()
            old, wanted = values.reshape(-1)[rows], returns.reshape(-1)[rows]
            value = value.view(-1)
            error = 0.5 * torch.max((value - wanted) ** 2, (old + (value - old).clamp(-0.1, 0.1) - wanted) ** 2).mean()
            loss = policy - 0.01 * entropy.mean() + 0.5 * error
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
            optimizer.step()
        with torch.no_grad():
            kl = ((ratio - 1) - ratio.log()).mean()
        if kl.item() > 5.0:
            break
print(loss.item(), kl.item())
