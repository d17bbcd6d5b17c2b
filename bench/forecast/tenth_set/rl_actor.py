"""Reinforcement learning over two ranks: an actor on rank 1 plays a made-up game and sends its trajectories, a learner on rank 0 trains PPO and broadcasts the new weights."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributions import Categorical


class Agent(nn.Module):
    def __init__(self, actions=18):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512), nn.ReLU())
        self.policy, self.value = nn.Linear(512, actions), nn.Linear(512, 1)

    def forward(self, x):
        h = self.body(x.float() / 255)
        return Categorical(logits=self.policy(h)), self.value(h).squeeze(-1)


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
torch.manual_seed(rank)
agent, T, E = Agent().to(device), 64, 32
for p in agent.parameters():
    dist.broadcast(p.data, 0)
opt = torch.optim.Adam(agent.parameters(), 2.5e-4, eps=1e-5)
shapes = {"seen": ((T, E, 4, 84, 84), torch.uint8), "did": ((T, E), torch.long), "logp": ((T, E), torch.float), "got": ((T, E), torch.float), "value": ((T + 1, E), torch.float)}
for update in range(4):
    roll = {k: torch.zeros(s, dtype=t, device=device) for k, (s, t) in shapes.items()}
    if rank == 1:
        world = torch.randint(0, 256, (E, 4, 84, 84), dtype=torch.uint8, device=device)
        with torch.no_grad():
            for t in range(T):
                policy, roll["value"][t] = agent(world)
                action = policy.sample()
                roll["seen"][t], roll["did"][t], roll["logp"][t] = world, action, policy.log_prob(action)
                world = torch.cat([world[:, 1:], torch.randint(0, 256, (E, 1, 84, 84), dtype=torch.uint8, device=device)], 1)
                roll["got"][t] = (action == 3).float()
            roll["value"][T] = agent(world)[1]
        for v in roll.values():
            dist.send(v, 0)
    else:
        for v in roll.values():
            dist.recv(v, 1)
        gain, last = torch.zeros_like(roll["got"]), 0
        for t in reversed(range(T)):
            last = roll["got"][t] + 0.99 * roll["value"][t + 1] - roll["value"][t] + 0.99 * 0.95 * last
            gain[t] = last
        flat = {k: v.flatten(0, 1) for k, v in roll.items() if k != "value"}
        gain, target = gain.flatten(), (gain + roll["value"][:-1]).flatten()
        for epoch in range(3):
            for at in torch.randperm(T * E, device=device).split(512):
                policy, value = agent(flat["seen"][at])
                ratio = (policy.log_prob(flat["did"][at]) - flat["logp"][at]).exp()
                a = (gain[at] - gain[at].mean()) / (gain[at].std() + 1e-8)
                loss = torch.max(-a * ratio, -a * ratio.clamp(0.9, 1.1)).mean() + 0.5 * (value - target[at]).square().mean() - 0.01 * policy.entropy().mean()
                opt.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                opt.step()
        print(update, loss.item())
    for p in agent.parameters():
        dist.broadcast(p.data, 0)
dist.destroy_process_group()
