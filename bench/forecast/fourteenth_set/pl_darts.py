"""DARTS: a cell of mixed operations, architecture and weights learned in turns by second-order steps (gradients by finite differences), SGD and Adam, discretised at last."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
norm = lambda c: nn.BatchNorm2d(c, affine=False)
OPS = [lambda c: nn.Identity(), lambda c: nn.Sequential(nn.MaxPool2d(3, 1, 1), norm(c)), lambda c: nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), norm(c)),
       lambda c: nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, 1, 1, groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), norm(c)), lambda c: nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 5, 1, 2, groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), norm(c)),
       lambda c: nn.Sequential(nn.ReLU(), nn.Conv2d(c, c, 3, 1, 2, dilation=2, groups=c, bias=False), nn.Conv2d(c, c, 1, bias=False), norm(c))]


class Cell(nn.Module):
    def __init__(self, c, nodes=4):
        super().__init__()
        self.nodes, self.mix = nodes, nn.Sequential(nn.ReLU(), nn.Conv2d(nodes * c, c, 1, bias=False), norm(c))
        self.edges = nn.ModuleList(nn.ModuleList(op(c) for op in OPS) for i in range(nodes) for _ in range(i + 1))

    def forward(self, x, weights):
        states, at = [x], 0
        for i in range(self.nodes):
            total = 0
            for s in states:
                total = total + sum(w * op(s) for w, op in zip(weights[at], self.edges[at]))
                at += 1
            states.append(total)
        return self.mix(torch.cat(states[1:], 1))


class Search(nn.Module):
    def __init__(self, c=24, cells=4):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, c, 3, 1, 1, bias=False), nn.BatchNorm2d(c))
        self.cells, self.head = nn.ModuleList(Cell(c) for _ in range(cells)), nn.Linear(c, 10)
        self.alphas = nn.Parameter(1e-3 * torch.randn(10, len(OPS)))

    def weights(self):
        return [p for n, p in self.named_parameters() if n != "alphas"]

    def forward(self, x):
        x, w = self.stem(x), self.alphas.softmax(-1)
        for cell in self.cells:
            x = cell(x, w)
        return self.head(x.mean((2, 3)))


net = Search().cuda()
optimizer = torch.optim.SGD(net.weights(), lr=0.025, momentum=0.9, weight_decay=3e-4)
architect = torch.optim.Adam([net.alphas], lr=3e-4, betas=(0.5, 0.999), weight_decay=1e-3)
data = lambda: (torch.randn(32, 3, 32, 32, device="cuda"), torch.randint(0, 10, (32,), device="cuda"))
loss_of = lambda model, batch: F.cross_entropy(model(batch[0]), batch[1])
for step in range(4):
    train, held = data(), data()
    ahead = copy.deepcopy(net)
    grads = torch.autograd.grad(loss_of(net, train), net.weights())
    with torch.no_grad():
        for p, q, g in zip(ahead.weights(), net.weights(), grads):
            moved = optimizer.state[q].get("momentum_buffer", torch.zeros_like(q)) * 0.9
            p.copy_(q - 0.025 * (moved + g + 3e-4 * q))
    *dw, da = torch.autograd.grad(loss_of(ahead, held), ahead.weights() + [ahead.alphas])
    eps = 0.01 / torch.cat([g.flatten() for g in dw]).norm()
    slopes = []
    for sign in (1, -2):
        with torch.no_grad():
            for p, g in zip(net.weights(), dw):
                p += sign * eps * g
        slopes.append(torch.autograd.grad(loss_of(net, train), net.alphas)[0])
    with torch.no_grad():
        for p, g in zip(net.weights(), dw):
            p += eps * g
    net.alphas.grad = da - 0.025 * (slopes[0] - slopes[1]) / (2 * eps)
    architect.step()
    optimizer.zero_grad()
    loss = loss_of(net, train)
    loss.backward()
    nn.utils.clip_grad_norm_(net.weights(), 5)
    optimizer.step()
print(loss.item(), net.alphas.argmax(1).tolist())
