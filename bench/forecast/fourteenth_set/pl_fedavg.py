"""Federated averaging on one card: eight clients copy a ResNet in turn, train on their own share with FedProx, weights are averaged by size, tested after each round."""
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.utils.data import DataLoader, Subset, TensorDataset

torch.manual_seed(0)
pictures = TensorDataset(torch.randn(800, 3, 64, 64), torch.randint(0, 100, (800,)))
held = DataLoader(TensorDataset(torch.randn(200, 3, 64, 64), torch.randint(0, 100, (200,))), batch_size=100)
shares = torch.distributions.Dirichlet(torch.full((8,), 2.0)).sample()
ends = (shares.cumsum(0) * 800).long().clamp(max=800).tolist()
clients = [list(range(a, max(b, a + 20))) for a, b in zip([0, *ends[:-1]], ends)]
clients = [[i % 800 for i in c] for c in clients]
server = torchvision.models.resnet18(weights=None, num_classes=100, norm_layer=lambda c: nn.GroupNorm(16, c)).cuda()


def trained(state, rows):
    model = copy.deepcopy(server)
    model.load_state_dict(state)
    model.train()
    start = [p.detach().clone() for p in model.parameters()]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    for x, y in DataLoader(Subset(pictures, rows), batch_size=32, shuffle=True):
        loss = F.cross_entropy(model(x.cuda()), y.cuda())
        loss = loss + 0.005 * sum((p - q).pow(2).sum() for p, q in zip(model.parameters(), start))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.state_dict(), len(rows), loss.item()


for turn in range(2):
    chosen = torch.randperm(8)[:5].tolist()
    states, sizes, losses = zip(*(trained(server.state_dict(), clients[c]) for c in chosen))
    mean = {k: sum(s[k] * (n / sum(sizes)) for s, n in zip(states, sizes)).to(states[0][k].dtype) for k in states[0]}
    server.load_state_dict(mean)
    server.eval()
    with torch.no_grad():
        right = sum((server(x.cuda()).argmax(1) == y.cuda()).sum().item() for x, y in held)
    print(turn, losses, right / 200)
