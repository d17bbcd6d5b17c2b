"""DQN: memory of pictures on the card in bytes, two networks, chance to explore, priorities."""
import copy
import torch
import torch.nn as nn
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(4, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2), nn.ReLU(), nn.Conv2d(64, 64, 3), nn.ReLU(), nn.Flatten(), nn.Linear(3136, 512),
                    nn.ReLU(), nn.Linear(512, 6)).cuda()
slow = copy.deepcopy(net)
optimizer = torch.optim.Adam(net.parameters(), lr=1e-4)
frames = torch.zeros(20000, 4, 84, 84, dtype=torch.uint8, device="cuda")
acts, gains = torch.zeros(20000, dtype=torch.long, device="cuda"), torch.zeros(20000, device="cuda")
weight = torch.full((20000,), 1e-3, device="cuda")
for turn in range(40):
    now = torch.randint(0, 255, (16, 4, 84, 84), dtype=torch.uint8, device="cuda")
    with torch.no_grad():
        act = torch.where(torch.rand(16, device="cuda") < 0.1, torch.randint(0, 6, (16,), device="cuda"), net(now.float() / 255).argmax(1))
    rows = slice(turn * 16, turn * 16 + 16)
    frames[rows], acts[rows], gains[rows], weight[rows] = now, act, torch.randn(16, device="cuda"), 1.0
    if turn % 4 == 3:
        pick = torch.multinomial(weight, 256)
        with torch.no_grad():
            goal = gains[pick] + 0.99 * slow(frames[(pick + 1) % 20000].float() / 255).amax(1)
        error = net(frames[pick].float() / 255).gather(1, acts[pick, None]).squeeze(1) - goal
        weight[pick] = error.detach().abs() + 1e-3
        nn.functional.huber_loss(error, torch.zeros_like(error)).backward()
        optimizer.step()
        optimizer.zero_grad()
    if turn % 20 == 19:
        slow.load_state_dict(net.state_dict())
