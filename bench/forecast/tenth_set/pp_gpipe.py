"""Pipeline parallel: two stages of a decoder by hand (embedding on rank 0, head on rank 1), ScheduleGPipe with 8 micro-batches, then Schedule1F1B."""
import os
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe


class Stage(nn.Module):
    def __init__(self, rank, d=1024, vocab=16000):
        super().__init__()
        self.embed = nn.Embedding(vocab, d) if rank == 0 else None
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(d, 16, 4 * d, dropout=0.0, batch_first=True, norm_first=True) for _ in range(4))
        self.head = nn.Linear(d, vocab) if rank == 1 else None

    def forward(self, x):
        x = self.embed(x) if self.embed is not None else x
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], device=x.device, dtype=x.dtype)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x) if self.head is not None else x


dist.init_process_group("nccl")
rank = int(os.environ["LOCAL_RANK"])
device = torch.device("cuda", rank)
torch.cuda.set_device(device)
torch.manual_seed(rank)
module = Stage(rank).to(device)
stage = PipelineStage(module, rank, 2, device)
opt = torch.optim.Adam(module.parameters(), 1e-4)
for kind in (ScheduleGPipe, Schedule1F1B):
    schedule = kind(stage, n_microbatches=8, loss_fn=lambda out, y: F.cross_entropy(out.flatten(0, 1), y.flatten()))
    for step in range(3):
        i = torch.randint(0, 16000, (16, 257), device=device)
        losses = []
        if rank == 0:
            schedule.step(i[:, :-1].contiguous())
        else:
            schedule.step(target=i[:, 1:].contiguous(), losses=losses)
        opt.step()
        opt.zero_grad()
    print(kind.__name__, rank, torch.stack(losses).mean().item() if losses else "")
dist.destroy_process_group()
