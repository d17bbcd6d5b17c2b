"""Trains convolutions, a recurrent network or a small transformer in fp16 with a gradient scaler."""
import argparse

import torch
import torch.nn as nn

p = argparse.ArgumentParser()
p.add_argument("--model", default="transformer", choices=["transformer", "lstm", "conv"])
p.add_argument("--batch", type=int, default=32)
p.add_argument("--len", type=int, default=256)
p.add_argument("--precision", default="fp16", choices=["fp16", "fp32"])
p.add_argument("--steps", type=int, default=12)
a = p.parse_args()


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.lstm, self.out = nn.Embedding(10000, 512), nn.LSTM(512, 1024, num_layers=2, batch_first=True), nn.Linear(1024, 10000)

    def forward(self, ids):
        return self.out(self.lstm(self.embed(ids))[0])


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10000, 512)
        self.layers = nn.ModuleList(nn.Sequential(nn.Conv1d(512, 512, 5, padding=2), nn.BatchNorm1d(512), nn.GELU(), nn.Dropout(0.1)) for _ in range(6))
        self.out = nn.Linear(512, 10000)

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        for layer in self.layers:
            x = x + layer(x)
        return self.out(x.transpose(1, 2))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(10000, 512), nn.Linear(512, 10000)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, dropout=0.1, batch_first=True, norm_first=True), 6)

    def forward(self, ids):
        mask = nn.Transformer.generate_square_subsequent_mask(ids.shape[1], device=ids.device)
        return self.out(self.layers(self.embed(ids), mask=mask, is_causal=True))


torch.manual_seed(0)
model = {"transformer": Transformer, "lstm": Recurrent, "conv": Convolutions}[a.model]().cuda()
optimizer, scaler = torch.optim.Adam(model.parameters(), lr=1e-4), torch.amp.GradScaler("cuda", enabled=a.precision == "fp16")
for step in range(a.steps):
    ids = torch.randint(10000, (a.batch, a.len + 1)).cuda()
    with torch.autocast("cuda", torch.float16, enabled=a.precision == "fp16"):
        loss = nn.functional.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
    print(step, loss.item(), scaler.get_scale(), flush=True)
