"""torchvision's recipe: workers and pinned memory, v2 transforms on the card, CutMix or MixUp by chance, MNASNet with averaged weights, fp16, gradients clipped."""
import random
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset, default_collate
from torchvision.models import mnasnet1_0
from torchvision.transforms import v2
torch.manual_seed(0)
random.seed(3)
class Pictures(Dataset):
    def __len__(self):
        return 200
    def __getitem__(self, i):
        return torch.randint(0, 256, (3, 178, 190), dtype=torch.uint8), i % 51
mix = v2.RandomChoice([v2.CutMix(num_classes=51), v2.MixUp(num_classes=51)])
loader = DataLoader(Pictures(), batch_size=40, num_workers=3, pin_memory=True, persistent_workers=True, shuffle=True, drop_last=True, collate_fn=default_collate)
change = v2.Compose([v2.RandomResizedCrop(161, scale=(0.3, 1.0), antialias=True), v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
                     v2.RandomErasing(0.3)])
model = mnasnet1_0(num_classes=51).cuda()
average = torch.optim.swa_utils.AveragedModel(model, avg_fn=lambda a, p, n: 0.99 * a + 0.01 * p, use_buffers=True)
thin = [p for p in model.parameters() if p.dim() < 2]
optimizer = torch.optim.SGD([{"params": thin, "weight_decay": 0.0}, {"params": [p for p in model.parameters() if p.dim() > 1]}], 0.1, momentum=0.9, weight_decay=2e-5, nesterov=True)
schedule = torch.optim.lr_scheduler.SequentialLR(optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.1, total_iters=3), torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)], [3])
scaler = torch.amp.GradScaler()
for epoch in range(2):
    model.train()
    for x, y in loader:
        x, y = mix(change(x.cuda(non_blocking=True)), y.cuda(non_blocking=True))
        with torch.autocast("cuda", torch.float16):
            loss = nn.functional.cross_entropy(model(x), y, label_smoothing=0.1)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        average.update_parameters(model)
    schedule.step()
    average.eval()
    with torch.inference_mode():
        right = sum((average(change(x.cuda())).topk(5).indices == y.cuda()[:, None]).any(1).float().sum() for x, y in loader)
    print(loss.item(), right.item())
