"""Continual learning: four tasks one after another, EWC with Fisher's diagonals kept of each, dark experiences in a buffer that is filled by reservoir, a head a task."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision

torch.manual_seed(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = torchvision.models.mobilenet_v3_small(weights=None).features
        self.heads = nn.ModuleList()

    def forward(self, x, task=None):
        x = self.body(x).mean((2, 3))
        return self.heads[task](x) if task is not None else torch.cat([h(x) for h in self.heads], 1)


net = Net().cuda()
kept, buffer, seen = [], {"x": torch.zeros(500, 3, 96, 96, device="cuda"), "z": torch.zeros(500, 80, device="cuda")}, 0
for task in range(4):
    net.heads.append(nn.Linear(576, 20).cuda())
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    net.train()
    for step in range(5):
        x, y = torch.randn(64, 3, 96, 96, device="cuda"), torch.randint(0, 20, (64,), device="cuda")
        loss = F.cross_entropy(net(x, task), y)
        for fisher, old in kept:
            loss = loss + 100 * sum((fisher[n] * (p - old[n]) ** 2).sum() for n, p in net.named_parameters() if n in fisher)
        if seen:
            rows = torch.randperm(min(seen, 500), device="cuda")[:64]
            said = net(buffer["x"][rows])
            loss = loss + 0.5 * F.mse_loss(said, buffer["z"][rows, :said.size(1)])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            z = F.pad(net(x), (0, 80 - 20 * (task + 1)))
        for row in range(16):
            at = seen if seen < 500 else int(torch.randint(0, seen + 1, (1,)))
            if at < 500:
                buffer["x"][at], buffer["z"][at] = x[row], z[row]
            seen += 1
    net.eval()
    fisher = {n: torch.zeros_like(p) for n, p in net.named_parameters()}
    for _ in range(20):
        net.zero_grad()
        F.nll_loss(F.log_softmax(net(torch.randn(1, 3, 96, 96, device="cuda"), task), 1), torch.randint(0, 20, (1,), device="cuda")).backward()
        for n, p in net.named_parameters():
            if p.grad is not None:
                fisher[n] += p.grad ** 2 / 20
    kept.append((fisher, {n: p.detach().clone() for n, p in net.named_parameters()}))
    print(task, loss.item(), torch.cuda.memory_allocated() // 2**20)
