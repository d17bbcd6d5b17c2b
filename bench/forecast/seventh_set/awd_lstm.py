"""AWD-LSTM: hidden weights dropped, dropout that stays over time, tied words, ASGD after a while, penalties on activations, states carried on,
lengths by chance."""
import random
import warnings
import torch
import torch.nn as nn
import torch.nn.functional as F
warnings.filterwarnings("ignore")
torch.manual_seed(0)
random.seed(0)
class Dropped(nn.Module):
    def __init__(self, rnn, p):
        super().__init__()
        self.rnn, self.p = rnn, p
        raw = rnn.weight_hh_l0
        self.raw = nn.Parameter(raw.detach().clone())
        del rnn._parameters["weight_hh_l0"]
        rnn.weight_hh_l0 = self.raw.detach().clone()
    def forward(self, x, state):
        self.rnn.weight_hh_l0 = F.dropout(self.raw, self.p, self.training)
        return self.rnn(x, state)
def locked(x, p):
    return x * x.new_empty(1, x.size(1), x.size(2)).bernoulli_(1 - p).div_(1 - p)
V, E, H = 33278, 400, 1150
class AWD(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(V, E)
        self.rnns = nn.ModuleList(Dropped(nn.LSTM(E if i == 0 else H, E if i == 2 else H), 0.5) for i in range(3))
        self.out = nn.Linear(E, V)
        self.out.weight = self.words.weight
    def forward(self, ids, states):
        keep = self.words.weight.new_empty(V, 1).bernoulli_(0.9).div_(0.9)
        x, after = locked(F.embedding(ids, self.words.weight * keep), 0.4), []
        for i, rnn in enumerate(self.rnns):
            x, s = rnn(x, states[i])
            after.append(s)
            raw = x
            x = locked(x, 0.25 if i < 2 else 0.4)
        return self.out(x), raw, x, after
model = AWD().cuda()
optimizer = torch.optim.SGD(model.parameters(), 30, weight_decay=1.2e-6)
B = 40
states = [None] * 3
for step in range(7):
    if step == 4:
        optimizer = torch.optim.ASGD(model.parameters(), 30, t0=0, lambd=0, weight_decay=1.2e-6)
    length = max(5, int(random.gauss(70 if random.random() < 0.95 else 35, 5)))
    ids = torch.randint(0, V, (length + 1, B), device="cuda")
    states = [None if s is None else tuple(t.detach() for t in s) for s in states]
    logits, raw, dropped, states = model(ids[:-1], states)
    loss = F.cross_entropy(logits.view(-1, V), ids[1:].reshape(-1))
    loss = loss + 2 * dropped.pow(2).mean() + (raw[1:] - raw[:-1]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 0.25)
    optimizer.step()
    print(length, loss.item())
