"""torchvision: R(2+1)D on clips of 16 pictures as its video reference trains it, channels-last in 3-D, fp16, a rate by steps, clips' votes added up in the evaluation."""
import torch
import torchvision
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
clips = TensorDataset(torch.randint(0, 256, (72, 16, 3, 112, 112), dtype=torch.uint8), torch.randint(0, 50, (72,)), torch.arange(72) // 3)
model = torchvision.models.video.r2plus1d_18(weights=None, num_classes=50).cuda().to(memory_format=torch.channels_last_3d)
optimizer = torch.optim.SGD(model.parameters(), lr=0.08, momentum=0.9, weight_decay=1e-4)
rate = torch.optim.lr_scheduler.SequentialLR(optimizer, [torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=2), torch.optim.lr_scheduler.MultiStepLR(optimizer, [3, 5], 0.1)], milestones=[2])
scaler, criterion = torch.amp.GradScaler("cuda"), nn.CrossEntropyLoss()
mean, std = (torch.tensor(v, device="cuda").view(3, 1, 1, 1) for v in ((0.43, 0.39, 0.37), (0.22, 0.22, 0.21)))
ready = lambda x: ((x.cuda(non_blocking=True).permute(0, 2, 1, 3, 4).float() / 255 - mean) / std).contiguous(memory_format=torch.channels_last_3d)
loader = DataLoader(clips, batch_size=12, shuffle=True, num_workers=2, pin_memory=True, drop_last=True)
model.train()
for epoch in range(1):
    for pictures, labels, _ in loader:
        with torch.autocast("cuda"):
            loss = criterion(model(ready(pictures)), labels.cuda(non_blocking=True))
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        rate.step()
model.eval()
votes, right = torch.zeros(24, 50), torch.zeros(24, dtype=torch.long)
with torch.inference_mode():
    for pictures, labels, film in DataLoader(clips, batch_size=24):
        said = torch.softmax(model(ready(pictures)), 1).cpu()
        for row in range(len(film)):
            votes[film[row]] += said[row]
            right[film[row]] = labels[row]
print(loss.item(), (votes.argmax(1) == right).float().mean().item())
