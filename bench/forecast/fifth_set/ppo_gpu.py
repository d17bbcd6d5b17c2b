"""PPO in one file: a pendulum simulated on the card, generalised advantages, minibatches by a permutation, early stopping by the KL divergence."""
import torch
import torch.nn as nn
torch.manual_seed(0)
envs, horizon = 512, 64
actor = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)).cuda()
critic = nn.Sequential(nn.Linear(3, 128), nn.Tanh(), nn.Linear(128, 128), nn.Tanh(), nn.Linear(128, 1)).cuda()
log_std = nn.Parameter(torch.zeros(1, device="cuda"))
optimizer = torch.optim.Adam([*actor.parameters(), *critic.parameters(), log_std], 3e-4, eps=1e-5)
angle, speed = torch.zeros(envs, device="cuda"), torch.zeros(envs, device="cuda")
def see():
    return torch.stack([angle.cos(), angle.sin(), speed], 1)
for update in range(4):
    seen, acted, logs, values, rewards, dones = [], [], [], [], [], []
    for t in range(horizon):
        with torch.no_grad():
            s = see()
            d = torch.distributions.Normal(actor(s), log_std.exp())
            a = d.sample()
            seen.append(s), acted.append(a), logs.append(d.log_prob(a).sum(-1)), values.append(critic(s).squeeze(-1))
            force = a.squeeze(-1).clamp(-2, 2)
            speed = (speed + 0.05 * (15 * angle.sin() + 3 * force)).clamp(-8, 8)
            angle = angle + 0.05 * speed
            rewards.append(-(angle ** 2 + 0.1 * speed ** 2 + 0.001 * force ** 2))
            done = torch.rand(envs, device="cuda") < 0.01
            dones.append(done.float())
            angle, speed = torch.where(done, torch.zeros_like(angle), angle), torch.where(done, torch.zeros_like(speed), speed)
    with torch.no_grad():
        last, running, advantages = critic(see()).squeeze(-1), 0, []
        for t in reversed(range(horizon)):
            following = last if t == horizon - 1 else values[t + 1]
            delta = rewards[t] + 0.99 * following * (1 - dones[t]) - values[t]
            running = delta + 0.99 * 0.95 * (1 - dones[t]) * running
            advantages.insert(0, running)
    s, a, old, v, adv = (torch.stack(x).flatten(0, 1) for x in (seen, acted, logs, values, advantages))
    returns = adv + v
    for epoch in range(4):
        for index in torch.randperm(envs * horizon, device="cuda").split(4096):
            d = torch.distributions.Normal(actor(s[index]), log_std.exp())
            new = d.log_prob(a[index]).sum(-1)
            ratio = (new - old[index]).exp()
            k = ((ratio - 1) - (new - old[index])).mean()
            b = (adv[index] - adv[index].mean()) / (adv[index].std() + 1e-8)
            loss = torch.max(-b * ratio, -b * ratio.clamp(0.8, 1.2)).mean() + 0.5 * (critic(s[index]).squeeze(-1) - returns[index]).pow(2).mean() - 0.01 * d.entropy().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_([*actor.parameters(), *critic.parameters(), log_std], 0.5)
            optimizer.step()
        if k > 5:
            break
    print(update, loss.item())
