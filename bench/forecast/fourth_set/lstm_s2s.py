"""Translation by LSTMs: packed source, attention over it, a decoder fed word by word, half of them its own."""
import random
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
torch.manual_seed(0)
random.seed(0)
class Translate(nn.Module):
    def __init__(self, words=8000, size=512):
        super().__init__()
        self.source, self.target = nn.Embedding(words, size), nn.Embedding(words, size)
        self.encoder = nn.LSTM(size, size // 2, 2, batch_first=True, bidirectional=True)
        self.cell, self.out = nn.LSTMCell(2 * size, size), nn.Linear(2 * size, words)
    def forward(self, source, lengths, target):
        packed = pack_padded_sequence(self.source(source), lengths, batch_first=True, enforce_sorted=False)
        memory, _ = pad_packed_sequence(self.encoder(packed)[0], batch_first=True)
        hide = torch.arange(memory.shape[1], device="cuda")[None] >= lengths.cuda()[:, None]
        h = c = memory.new_zeros(len(source), memory.shape[2])
        word, outs = target[:, 0], []
        for i in range(1, target.shape[1]):
            weight = torch.bmm(memory, h.unsqueeze(2)).squeeze(2).masked_fill(hide, -1e4).softmax(1)
            seen = torch.bmm(weight.unsqueeze(1), memory).squeeze(1)
            h, c = self.cell(torch.cat([self.target(word), seen], 1), (h, c))
            outs.append(self.out(torch.cat([h, seen], 1)))
            word = target[:, i] if random.random() < 0.5 else outs[-1].argmax(1)
        return torch.stack(outs, 1)
model = Translate().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for step in range(5):
    lengths = torch.randint(15, 50, (48,))
    source, target = torch.randint(1, 8000, (48, int(lengths.max()))).cuda(), torch.randint(1, 8000, (48, 30)).cuda()
    loss = nn.functional.cross_entropy(model(source, lengths, target).flatten(0, 1), target[:, 1:].flatten())
    optimizer.zero_grad()
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
