"""Trains models that are plain PyTorch: two networks against each other, a padded encoder, recurrent layers over sound, rows of a table, a UNet."""
import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F

p = argparse.ArgumentParser()
p.add_argument("--model", default="gan", choices=["gan", "encoder", "gru", "table", "unet"])
p.add_argument("--batch", type=int, default=64)
p.add_argument("--size", type=int, default=64)
p.add_argument("--precision", default="fp32", choices=["bf16", "fp32"])
p.add_argument("--steps", type=int, default=0)
a = p.parse_args()
torch.manual_seed(0)


def up(i, o, **stride):
    return nn.Sequential(nn.ConvTranspose2d(i, o, 4, bias=False, **stride), nn.BatchNorm2d(o), nn.ReLU(True))


def down(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 4, 2, 1, bias=False), nn.BatchNorm2d(o), nn.LeakyReLU(0.2, True))


def twice(i, o):
    return nn.Sequential(nn.Conv2d(i, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU(), nn.Conv2d(o, o, 3, padding=1), nn.GroupNorm(8, o), nn.SiLU())


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20000, 512), nn.Linear(512, 20000)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True), 6)

    def loss(self):
        ids = torch.randint(1, 20000, (a.batch, a.size)).cuda()
        lengths = torch.randint(a.size // 3, a.size + 1, (a.batch, 1)).cuda()
        hidden = torch.arange(a.size, device="cuda") >= lengths
        return F.cross_entropy(self.out(self.layers(self.embed(ids), src_key_padding_mask=hidden)).flatten(0, 1), ids.masked_fill(hidden, -100).flatten())


class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.front = nn.Sequential(nn.Conv1d(80, 256, 5, 2, 2), nn.ReLU(), nn.Conv1d(256, 256, 5, 2, 2), nn.ReLU())
        self.layers, self.out = nn.GRU(256, 512, 3, batch_first=True, bidirectional=True, dropout=0.1), nn.Linear(1024, 500)

    def loss(self):
        sound, words = torch.randn(a.batch, 80, 4 * a.size).cuda(), torch.randint(1, 500, (a.batch, 24)).cuda()
        chances = self.out(self.layers(self.front(sound).transpose(1, 2))[0]).log_softmax(-1).transpose(0, 1)
        return F.ctc_loss(chances, words, torch.full((a.batch,), a.size), torch.full((a.batch,), 24))


class Table(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.ModuleList(nn.EmbeddingBag(200000, 64, mode="sum") for _ in range(12))
        self.layers = nn.Sequential(nn.Linear(12 * 64 + 13, 1024), nn.BatchNorm1d(1024), nn.ReLU(), nn.Dropout(0.2), nn.Linear(1024, 512), nn.ReLU(), nn.Linear(512, 1))

    def loss(self):
        ids, rest = torch.randint(200000, (12, a.batch, a.size)).cuda(), torch.randn(a.batch, 13).cuda()
        x = torch.cat([*(e(i) for e, i in zip(self.embed, ids)), rest], 1)
        return F.binary_cross_entropy_with_logits(self.layers(x)[:, 0], torch.rand(a.batch).round().cuda())


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        widths = [3, 64, 128, 256, 512]
        self.downs = nn.ModuleList(twice(i, o) for i, o in zip(widths, widths[1:]))
        self.ups = nn.ModuleList(nn.ConvTranspose2d(o, i, 2, 2) for i, o in zip(widths[1:], widths[2:]))
        self.joins = nn.ModuleList(twice(2 * i, i) for i in widths[1:-1])
        self.out = nn.Conv2d(64, 8, 1)

    def loss(self):
        x, kept = torch.randn(a.batch, 3, a.size, a.size).cuda(), []
        for i, layer in enumerate(self.downs):
            x = layer(F.max_pool2d(x, 2) if i else x)
            kept.append(x)
        for i in reversed(range(len(self.ups))):
            x = self.joins[i](torch.cat([self.ups[i](x), kept[i]], 1))
        return F.cross_entropy(self.out(x), torch.randint(8, (a.batch, a.size, a.size)).cuda())


def gan():
    make = nn.Sequential(up(128, 512), up(512, 256, stride=2, padding=1), up(256, 128, stride=2, padding=1), up(128, 64, stride=2, padding=1),
                         nn.ConvTranspose2d(64, 3, 4, 2, 1), nn.Tanh()).cuda()
    judge = nn.Sequential(nn.Conv2d(3, 64, 4, 2, 1), nn.LeakyReLU(0.2, True), down(64, 128), down(128, 256), down(256, 512), nn.Conv2d(512, 1, 4), nn.Flatten(0)).cuda()
    made, judged = (torch.optim.Adam(m.parameters(), lr=2e-4, betas=(0.5, 0.999)) for m in (make, judge))
    for step in range(a.steps or 5):
        real, fake = torch.randn(a.batch, 3, 64, 64).cuda(), make(torch.randn(a.batch, 128, 1, 1, device="cuda"))
        loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake.detach())).mean()
        judged.zero_grad()
        loss.backward()
        judged.step()
        made.zero_grad()
        F.softplus(-judge(fake)).mean().backward()
        made.step()
        print(step, loss.item(), flush=True)


def one():
    model = {"encoder": Encoder, "gru": Sound, "table": Table, "unet": UNet}[a.model]().cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    for step in range(a.steps or 8):
        with torch.autocast("cuda", torch.bfloat16, enabled=a.precision == "bf16"):
            loss = model.loss()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(step, loss.item(), flush=True)


gan() if a.model == "gan" else one()
