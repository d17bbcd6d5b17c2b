"""Self-play as AlphaZero does: a residual network, searches of a batch of games on the host, priors read back, a buffer, training steps."""
import random
import numpy as np
import torch
import torch.nn as nn
torch.manual_seed(0)
np.random.seed(0)
random.seed(0)
class Res(nn.Module):
    def __init__(self, c):
        super().__init__()
        self.net = nn.Sequential(nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c), nn.ReLU(), nn.Conv2d(c, c, 3, padding=1, bias=False), nn.BatchNorm2d(c))
    def forward(self, x):
        return torch.relu(x + self.net(x))
class Net(nn.Module):
    def __init__(self, c=112, n=6):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, c, 3, padding=1), nn.BatchNorm2d(c), nn.ReLU(), *(Res(c) for _ in range(n)))
        self.policy = nn.Sequential(nn.Conv2d(c, 2, 1), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 81, 81))
        self.value = nn.Sequential(nn.Conv2d(c, 1, 1), nn.BatchNorm2d(1), nn.ReLU(), nn.Flatten(), nn.Linear(81, 64), nn.ReLU(), nn.Linear(64, 1), nn.Tanh())
    def forward(self, x):
        h = self.body(x)
        return self.policy(h), self.value(h)
model = Net().cuda()
optimizer = torch.optim.SGD(model.parameters(), 0.02, momentum=0.9, weight_decay=1e-4)
buffer = []
for round_ in range(2):
    model.eval()
    boards = np.zeros((32, 3, 9, 9), dtype=np.float32)
    for move in range(12):
        visits = np.zeros((32, 81))
        for simulation in range(8):
            tried = boards.copy()
            for g in range(32):
                a = np.random.choice(81)
                tried[g, simulation % 2, a // 9, a % 9] = 1
            with torch.no_grad():
                p, v = model(torch.from_numpy(tried).cuda())
                p = p.softmax(1).cpu().numpy()
            for g in range(32):
                visits[g, int(np.argmax(p[g] + np.random.rand(81) * 0.1))] += 1
        for g in range(32):
            buffer.append((boards[g].copy(), visits[g] / visits[g].sum(), random.choice([-1.0, 1.0])))
            a = int(visits[g].argmax())
            boards[g, move % 2, a // 9, a % 9] = 1
    model.train()
    for _ in range(5):
        x, pi, z = zip(*random.sample(buffer, 200))
        x, pi, z = torch.from_numpy(np.stack(x)).cuda(), torch.tensor(np.stack(pi), dtype=torch.float32).cuda(), torch.tensor(z).cuda()
        p, v = model(x)
        loss = -(pi * p.log_softmax(1)).sum(1).mean() + (v.squeeze(1) - z).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(loss.item())
