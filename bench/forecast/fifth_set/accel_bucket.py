"""accelerate: gradients accumulated over batches of several lengths, sorted into buckets, the cache emptied after each epoch."""
import random
import torch
import torch.nn as nn
from accelerate import Accelerator
from accelerate.utils import set_seed
set_seed(3)
accelerator = Accelerator(mixed_precision="bf16", gradient_accumulation_steps=3)
class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9001, 330, padding_idx=0)
        self.layers = nn.TransformerEncoder(nn.TransformerEncoderLayer(330, 6, 1300, batch_first=True, norm_first=True), 5, enable_nested_tensor=False)
        self.head = nn.Linear(330, 23)
    def forward(self, ids):
        return self.head(self.layers(self.embed(ids), src_key_padding_mask=ids == 0))
rng = random.Random(1)
texts = sorted(([rng.randrange(1, 9001) for _ in range(rng.randrange(10, 230))] for _ in range(360)), key=len)
batches = [texts[i:i + 24] for i in range(0, 360, 24)]
def collate(rows):
    rows = rows[0]
    width = max(map(len, rows))
    return torch.tensor([r + [0] * (width - len(r)) for r in rows])
loader = torch.utils.data.DataLoader(batches, batch_size=1, shuffle=True, collate_fn=collate)
model = Tagger()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 20)
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
for epoch in range(2):
    total = 0.0
    for ids in loader:
        with accelerator.accumulate(model):
            logits = model(ids)
            loss = nn.functional.cross_entropy(logits.transpose(1, 2).float(), ids % 23, reduction="none")
            loss = (loss * (ids != 0)).sum() / (ids != 0).sum()
            accelerator.backward(loss)
            if accelerator.sync_gradients:
                accelerator.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            total += loss.detach().float()
    accelerator.print(epoch, total.item() / len(loader))
    torch.cuda.empty_cache()
