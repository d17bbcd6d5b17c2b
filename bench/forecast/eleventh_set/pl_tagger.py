"""A tagger of words: packed sequences through a two-layer LSTM both ways, characters by a convolution, Adam, a step of decay."""
import random
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(0)
random.seed(0)


class Tagger(nn.Module):
    def __init__(self, words=30000, letters=120, tags=24):
        super().__init__()
        self.words, self.letters = nn.Embedding(words, 256, padding_idx=0), nn.Embedding(letters, 32, padding_idx=0)
        self.chars = nn.Conv1d(32, 64, 3, padding=1)
        self.lstm = nn.LSTM(320, 384, num_layers=2, bidirectional=True, batch_first=True, dropout=0.3)
        self.out = nn.Linear(768, tags)

    def forward(self, words, letters, lengths):
        b, t, n = letters.shape
        chars = self.chars(self.letters(letters).view(b * t, n, -1).transpose(1, 2)).amax(-1).view(b, t, -1)
        packed = pack_padded_sequence(torch.cat([self.words(words), chars], -1), lengths, batch_first=True, enforce_sorted=False)
        return self.out(pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0])


model = Tagger().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
decay = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
for step in range(8):
    lengths = [random.randint(8, 120) for _ in range(64)]
    words = pad_sequence([torch.randint(1, 30000, (n,)) for n in lengths], batch_first=True)
    tags = pad_sequence([torch.randint(0, 24, (n,)) for n in lengths], batch_first=True, padding_value=-1).cuda()
    letters = torch.randint(0, 120, (*words.shape, 12))
    scores = model(words.cuda(), letters.cuda(), torch.tensor(lengths))
    loss = nn.functional.cross_entropy(scores.flatten(0, 1), tags.flatten(), ignore_index=-1)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    decay.step()
print(loss.item())
