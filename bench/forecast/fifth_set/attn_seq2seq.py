"""The tutorial of translation: an encoder GRU and a decoder GRU with Bahdanau's attention, one word at a time, teacher forcing by a coin."""
import random
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
random.seed(0)
class Encoder(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.embedding, self.gru, self.dropout = nn.Embedding(words, width), nn.GRU(width, width, batch_first=True), nn.Dropout(0.1)
    def forward(self, x):
        return self.gru(self.dropout(self.embedding(x)))
class Decoder(nn.Module):
    def __init__(self, width, words):
        super().__init__()
        self.embedding, self.gru, self.out = nn.Embedding(words, width), nn.GRU(2 * width, width, batch_first=True), nn.Linear(width, words)
        self.Wa, self.Ua, self.Va = nn.Linear(width, width), nn.Linear(width, width), nn.Linear(width, 1)
    def forward(self, outputs, hidden, target):
        word = torch.zeros(outputs.size(0), 1, dtype=torch.long, device="cuda")
        result = []
        for i in range(target.size(1)):
            query = hidden.permute(1, 0, 2)
            scores = self.Va(torch.tanh(self.Wa(query) + self.Ua(outputs))).squeeze(2).unsqueeze(1)
            context = torch.bmm(F.softmax(scores, -1), outputs)
            output, hidden = self.gru(torch.cat((self.embedding(word), context), 2), hidden)
            output = self.out(output)
            result.append(output)
            if random.random() < 0.5:
                word = target[:, i].unsqueeze(1)
            else:
                word = output.topk(1)[1].squeeze(-1).detach()
        return F.log_softmax(torch.cat(result, 1), -1)
encoder, decoder = Encoder(4345, 256).cuda(), Decoder(256, 2803).cuda()
optimizers = [torch.optim.Adam(m.parameters(), 1e-3) for m in (encoder, decoder)]
for step in range(8):
    x, y = torch.randint(0, 4345, (64, 21), device="cuda"), torch.randint(0, 2803, (64, 19), device="cuda")
    for o in optimizers:
        o.zero_grad()
    outputs, hidden = encoder(x)
    loss = F.nll_loss(decoder(outputs, hidden, y).view(-1, 2803), y.view(-1))
    loss.backward()
    for o in optimizers:
        o.step()
print(loss.item())
