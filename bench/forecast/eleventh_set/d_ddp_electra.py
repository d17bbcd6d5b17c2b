"""DDP: ELECTRA on padded texts by a DistributedSampler, weight decay by group, an EMA on the card, scores summed, rank 0 saves and all load."""
import copy
import os
import tempfile
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset, DistributedSampler
from transformers import ElectraConfig, ElectraForSequenceClassification

dist.init_process_group("nccl")
rank = dist.get_rank()
torch.cuda.set_device(rank)
torch.manual_seed(0)


class Texts(Dataset):
    def __len__(self):
        return 192

    def __getitem__(self, i):
        g = torch.Generator().manual_seed(i)
        return torch.randint(3, 16000, (60 + 37 * i % 330,), generator=g), i % 3


def collate(parts):
    ids = torch.nn.utils.rnn.pad_sequence([p[0] for p in parts], batch_first=True)
    return ids, (ids != 0).long(), torch.tensor([p[1] for p in parts])


model = ElectraForSequenceClassification(ElectraConfig(vocab_size=16000, embedding_size=256, hidden_size=640, num_hidden_layers=8, num_attention_heads=10, intermediate_size=2560, num_labels=3)).cuda()
ema = copy.deepcopy(model).requires_grad_(False).eval()
model = DDP(model, device_ids=[rank], static_graph=True, bucket_cap_mb=50)
plain = [p for n, p in model.named_parameters() if p.ndim < 2]
optimizer = torch.optim.AdamW([{"params": [p for p in model.parameters() if p.ndim > 1], "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}], lr=1e-4)
sampler = DistributedSampler(Texts(), shuffle=True)
loader = DataLoader(Texts(), batch_size=16, sampler=sampler, collate_fn=collate, pin_memory=True)
path = os.path.join(tempfile.gettempdir(), f"electra_{os.environ['MASTER_PORT']}.pt")
for epoch in range(2):
    sampler.set_epoch(epoch)
    model.train()
    for step, (ids, mask, labels) in enumerate(loader):
        if step == 3:
            break
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=ids.cuda(non_blocking=True), attention_mask=mask.cuda(non_blocking=True), labels=labels.cuda(non_blocking=True)).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        torch._foreach_lerp_(list(ema.parameters()), list(model.module.parameters()), 0.01)
    with torch.no_grad():
        hits = (ema(input_ids=ids.cuda(), attention_mask=mask.cuda()).logits.argmax(-1).cpu() == labels).sum().cuda()
    dist.all_reduce(hits)
    if rank == 0:
        torch.save({"model": model.module.state_dict(), "ema": ema.state_dict()}, path)
        print(epoch, hits.item())
    dist.barrier()
    saved = torch.load(path, map_location=f"cuda:{rank}", weights_only=True)
    model.module.load_state_dict(saved["model"])
dist.destroy_process_group()
