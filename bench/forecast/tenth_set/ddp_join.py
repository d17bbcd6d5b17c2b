"""DDP's join: ranks with uneven numbers of batches, an LSTM tagger, padded sequences of lengths that differ."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.algorithms.join import Join
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.nn.utils.rnn import pad_sequence


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(30000, 512, padding_idx=0)
        self.lstm = nn.LSTM(512, 512, 2, batch_first=True, bidirectional=True)
        self.tags = nn.Linear(1024, 40)

    def forward(self, x):
        return self.tags(self.lstm(self.words(x))[0])


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
torch.cuda.set_device(rank)
torch.manual_seed(rank)
model = DDP(Tagger().cuda(), device_ids=[rank])
opt = torch.optim.AdamW(model.parameters(), 1e-3)
batches = [pad_sequence([torch.randint(1, 30000, (60 + 7 * i + 20 * rank,)) for i in range(n % 5 + 20)], batch_first=True) for n in range(6 + 4 * rank)]
with Join([model]):
    for x in batches:
        x = x.cuda()
        y = torch.randint(0, 40, x.shape, device="cuda").masked_fill(x == 0, -100)
        loss = nn.functional.cross_entropy(model(x).transpose(1, 2), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
print(rank, len(batches), loss.item())
dist.destroy_process_group()
