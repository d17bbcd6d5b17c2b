"""nn.Transformer as the tutorial translates: masks for padding and for what comes, Noam's rate, label smoothing, then sentences said word by word until each has ended."""
import math
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence

torch.manual_seed(0)
WORDS, PAD, BOS, EOS = 16000, 0, 1, 2


class Translator(nn.Module):
    def __init__(self, dim=512):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, dim), nn.Embedding(WORDS, dim)
        places = torch.zeros(512, dim)
        angle = torch.arange(512)[:, None] * torch.exp(torch.arange(0, dim, 2) * (-math.log(10000.0) / dim))
        places[:, 0::2], places[:, 1::2] = angle.sin(), angle.cos()
        self.register_buffer("places", places)
        self.drop = nn.Dropout(0.1)
        self.core = nn.Transformer(dim, 8, 4, 4, 2048, dropout=0.1, batch_first=True)
        self.head = nn.Linear(dim, WORDS)
        for p in self.parameters():
            if p.dim() > 1:
                nn.init.xavier_uniform_(p)

    def put(self, table, ids):
        return self.drop(table(ids) * math.sqrt(table.embedding_dim) + self.places[:ids.size(1)])

    def forward(self, a, b):
        ahead = torch.triu(torch.ones(b.size(1), b.size(1), dtype=torch.bool, device=b.device), 1)
        out = self.core(self.put(self.source, a), self.put(self.target, b), tgt_mask=ahead, src_key_padding_mask=a == PAD, tgt_key_padding_mask=b == PAD, memory_key_padding_mask=a == PAD)
        return self.head(out)


def batch(n):
    make = lambda: pad_sequence([torch.cat([torch.tensor([BOS]), torch.randint(3, WORDS, (int(k),)), torch.tensor([EOS])]) for k in torch.randint(8, 70, (n,))], batch_first=True)
    return make().cuda(), make().cuda()


model = Translator().cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=1.0, betas=(0.9, 0.98), eps=1e-9)
rate = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: 512 ** -0.5 * min((s + 1) ** -0.5, (s + 1) * 4000 ** -1.5))
criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
for step in range(6):
    a, b = batch(64)
    logits = model(a, b[:, :-1])
    loss = criterion(logits.reshape(-1, WORDS), b[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    rate.step()
model.eval()
with torch.no_grad():
    a, _ = batch(32)
    memory = model.core.encoder(model.put(model.source, a), src_key_padding_mask=a == PAD)
    said, done = torch.full((32, 1), BOS, device="cuda"), torch.zeros(32, dtype=torch.bool, device="cuda")
    for i in range(40):
        ahead = torch.triu(torch.ones(said.size(1), said.size(1), dtype=torch.bool, device="cuda"), 1)
        out = model.core.decoder(model.put(model.target, said), memory, tgt_mask=ahead, memory_key_padding_mask=a == PAD)
        word = model.head(out[:, -1]).argmax(-1).masked_fill(done, PAD)
        said = torch.cat([said, word[:, None]], 1)
        done |= word == EOS
        if done.all():
            break
print(loss.item(), said.shape)
