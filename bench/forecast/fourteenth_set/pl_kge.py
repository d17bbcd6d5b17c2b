"""Knowledge graphs: RotatE with negatives that weigh themselves, then ComplEx scored against all entities with N3, filtered ranks in the evaluation, Adagrad and Adam."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
E, R, D = 40000, 200, 256
triples = torch.stack([torch.randint(0, E, (200000,)), torch.randint(0, R, (200000,)), torch.randint(0, E, (200000,))], 1)
known = {}
for h, r, t in triples[:20000].tolist():
    known.setdefault((h, r), []).append(t)


class RotatE(nn.Module):
    def __init__(self):
        super().__init__()
        self.entity, self.relation = nn.Embedding(E, 2 * D), nn.Embedding(R, D)
        nn.init.uniform_(self.entity.weight, -0.1, 0.1)
        nn.init.uniform_(self.relation.weight, -0.1, 0.1)

    def forward(self, h, r, t):
        (a, b), (c, d), angle = self.entity(h).chunk(2, -1), self.entity(t).chunk(2, -1), self.relation(r) / (0.1 / torch.pi)
        cos, sin = angle.cos(), angle.sin()
        return 12.0 - torch.stack([a * cos - b * sin - c, a * sin + b * cos - d], 0).norm(dim=0).sum(-1)


class ComplEx(nn.Module):
    def __init__(self):
        super().__init__()
        self.entity, self.relation = nn.Embedding(E, 2 * D), nn.Embedding(2 * R, 2 * D)

    def forward(self, h, r, t):
        (a, b), (c, d) = self.entity(h).chunk(2, -1), self.relation(r).chunk(2, -1)
        made = torch.cat([a * c - b * d, a * d + b * c], -1)
        norms = sum((x.view(-1, 2, D).pow(2).sum(1).sqrt() ** 3).sum() for x in (self.entity(h), self.relation(r), self.entity(t)))
        return made @ self.entity.weight.t(), norms / len(h)


model = RotatE().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
for step in range(8):
    h, r, t = triples[torch.randint(0, len(triples), (1024,))].cuda().t()
    other = torch.randint(0, E, (1024, 128), device="cuda")
    wrong = model(h[:, None], r[:, None], other) if step % 2 else model(other, r[:, None], t[:, None])
    loss = -(F.softmax(wrong.detach(), 1) * F.logsigmoid(-wrong)).sum(1).mean() - F.logsigmoid(model(h, r, t)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
del model, optimizer, wrong
model = ComplEx().cuda()
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1)
for step in range(6):
    h, r, t = triples[torch.randint(0, len(triples), (2000,))].cuda().t()
    scores, norms = model(h, r, t)
    loss = F.cross_entropy(scores, t) + 0.01 * norms
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
ranks = []
with torch.no_grad():
    for first in range(0, 2000, 500):
        part = triples[first:first + 500]
        scores = model(*part.cuda().t())[0]
        target = scores.gather(1, part[:, 2:].cuda())
        for row, (h, r, t) in enumerate(part.tolist()):
            others = [e for e in known[h, r] if e != t]
            if others:
                scores[row, torch.tensor(others, device="cuda")] = -1e6
        ranks.append(1 + (scores > target).sum(1).float())
ranks = torch.cat(ranks)
print(loss.item(), (1 / ranks).mean().item(), [(ranks <= k).float().mean().item() for k in (1, 3, 10)])
