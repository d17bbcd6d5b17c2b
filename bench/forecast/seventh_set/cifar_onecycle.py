"""A ResNet of CIFAR: a loader with pinned memory and a short last batch, bf16, channels-last, SGD with Nesterov by OneCycle, label smoothing, an
evaluation each epoch."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
class Basic(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.a, self.b = nn.Conv2d(i, o, 3, s, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.na, self.nb = nn.BatchNorm2d(o), nn.BatchNorm2d(o)
        self.skip = nn.Sequential() if s == 1 and i == o else nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))
    def forward(self, x):
        y = F.relu(self.na(self.a(x)), inplace=True)
        return F.relu(self.nb(self.b(y)) + self.skip(x), inplace=True)
class Net(nn.Module):
    def __init__(self, widths=(64, 128, 256, 512)):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.BatchNorm2d(64)
        layers, i = [], 64
        for n, w in enumerate(widths):
            layers += [Basic(i, w, 2 if n else 1), Basic(w, w, 1)]
            i = w
        self.layers, self.head = nn.Sequential(*layers), nn.Linear(i, 100)
    def forward(self, x):
        return self.head(F.adaptive_avg_pool2d(self.layers(F.relu(self.norm(self.stem(x)))), 1).flatten(1))
def main():
    torch.manual_seed(0)
    data = TensorDataset(torch.randint(0, 256, (1100, 3, 32, 32), dtype=torch.uint8), torch.randint(0, 100, (1100,)))
    train, test = DataLoader(data, 256, shuffle=True, num_workers=2, pin_memory=True), DataLoader(data, 500, num_workers=1, pin_memory=True)
    model = Net().to("cuda", memory_format=torch.channels_last)
    decay = [p for p in model.parameters() if p.ndim > 1]
    plain = [p for p in model.parameters() if p.ndim <= 1]
    optimizer = torch.optim.SGD([{"params": decay, "weight_decay": 5e-4}, {"params": plain, "weight_decay": 0}], lr=0.1, momentum=0.9, nesterov=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.4, epochs=2, steps_per_epoch=len(train))
    mean = torch.tensor([0.49, 0.48, 0.45], device="cuda").view(1, 3, 1, 1)
    for epoch in range(2):
        model.train()
        for x, y in train:
            x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
            x = ((x.float() / 255 - mean) / 0.25).contiguous(memory_format=torch.channels_last)
            with torch.autocast("cuda", torch.bfloat16):
                loss = F.cross_entropy(model(x), y, label_smoothing=0.1)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        model.eval()
        right = 0
        with torch.no_grad():
            for x, y in test:
                x = ((x.cuda().float() / 255 - mean) / 0.25).contiguous(memory_format=torch.channels_last)
                right += (model(x).argmax(1) == y.cuda()).sum().item()
        print(epoch, loss.item(), right / len(data))
if __name__ == "__main__":
    main()
