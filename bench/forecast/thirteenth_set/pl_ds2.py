"""Deep Speech 2: two convolutions, five packed bidirectional GRUs with batch norm, CTC, batches by length, novograd by hand, greedy words and their error rate."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

torch.manual_seed(0)


class Sounds(Dataset):
    def __init__(self, n):
        g = torch.Generator().manual_seed(1)
        self.lengths = torch.randint(200, 900, (n,), generator=g).tolist()
        self.words = [torch.randint(1, 29, (length // 12,), generator=g) for length in self.lengths]

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, i):
        return torch.randn(self.lengths[i], 80), self.words[i]


class Buckets(Sampler):
    def __init__(self, lengths, frames):
        order, self.batches, batch = sorted(range(len(lengths)), key=lengths.__getitem__), [], []
        for i in order:
            if batch and lengths[i] * (len(batch) + 1) > frames:
                self.batches.append(batch)
                batch = []
            batch.append(i)
        self.batches.append(batch)

    def __iter__(self):
        for i in torch.randperm(len(self.batches), generator=torch.Generator().manual_seed(2)).tolist():
            yield self.batches[i]

    def __len__(self):
        return len(self.batches)


def together(rows):
    x, y = zip(*rows)
    return pad_sequence(x, True), torch.tensor([len(a) for a in x]), torch.cat(y), torch.tensor([len(a) for a in y])


class Speech(nn.Module):
    def __init__(self, hidden=512, layers=5, out=29):
        super().__init__()
        self.front = nn.Sequential(nn.Conv2d(1, 32, (11, 41), (2, 2), (5, 20)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20), nn.Conv2d(32, 32, (11, 21), (1, 2), (5, 10)), nn.BatchNorm2d(32), nn.Hardtanh(0, 20))
        self.rnns = nn.ModuleList(nn.GRU(32 * 20 if i == 0 else hidden, hidden, bidirectional=True, batch_first=True) for i in range(layers))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(layers))
        self.head = nn.Linear(hidden, out)

    def forward(self, x, lengths):
        x = self.front(x[:, None]).transpose(1, 2).flatten(2)
        lengths = (lengths + 1) // 2
        for rnn, norm in zip(self.rnns, self.norms):
            packed, _ = rnn(pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False))
            x, _ = pad_packed_sequence(packed, batch_first=True, total_length=x.shape[1])
            x = norm(x.unflatten(-1, (2, -1)).sum(2).transpose(1, 2)).transpose(1, 2)
        return self.head(x).log_softmax(-1), lengths


model = Speech().cuda()
data = Sounds(120)
loader = DataLoader(data, batch_sampler=Buckets(data.lengths, 9000), collate_fn=together)
second = {p: None for p in model.parameters()}
first = {p: torch.zeros_like(p) for p in model.parameters()}
for step, (x, lengths, words, counts) in enumerate(loader):
    scores, frames = model(x.cuda(), lengths)
    loss = F.ctc_loss(scores.transpose(0, 1), words, frames, counts, zero_infinity=True)
    loss.backward()
    with torch.no_grad():
        for p in model.parameters():
            size = p.grad.pow(2).sum()
            second[p] = size if second[p] is None else 0.98 * second[p] + 0.02 * size
            first[p].mul_(0.95).add_(p.grad / (second[p].sqrt() + 1e-8) + 1e-3 * p)
            p.sub_(first[p], alpha=1e-3)
            p.grad = None
    if step == 7:
        break
model.eval()
wrong = total = 0
with torch.no_grad():
    for x, lengths, words, counts in list(loader)[:2]:
        best = model(x.cuda(), lengths)[0].argmax(-1).cpu()
        for row, n in zip(best, counts.tolist()):
            said = [w for w in torch.unique_consecutive(row).tolist() if w]
            wrong, total = wrong + abs(len(said) - n), total + n
print(loss.item(), wrong / total)
