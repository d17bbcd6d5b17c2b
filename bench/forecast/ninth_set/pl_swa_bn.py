"""Plain: a WRN trained with SWALR and averaged weights, batch-norm statistics made again by update_bn, drop-path, cut-outs on the card, FP32 and tf32."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel, SWALR, update_bn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_float32_matmul_precision("high")
torch.backends.cudnn.allow_tf32 = True


class Wide(nn.Module):
    def __init__(self, i, o, stride):
        super().__init__()
        self.a, self.b = nn.BatchNorm2d(i), nn.BatchNorm2d(o)
        self.c, self.d = nn.Conv2d(i, o, 3, stride, 1, bias=False), nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.s = nn.Conv2d(i, o, 1, stride, bias=False) if i != o or stride != 1 else nn.Identity()

    def forward(self, x):
        h = F.relu(self.a(x))
        return self.s(h if isinstance(self.s, nn.Conv2d) else x) + self.d(F.dropout(F.relu(self.b(self.c(h))), 0.1, self.training))


def net():
    layers, i = [nn.Conv2d(3, 16, 3, 1, 1, bias=False)], 16
    for o, stride in ((128, 1), (256, 2), (512, 2)):
        for k in range(3):
            layers.append(Wide(i, o, stride if k == 0 else 1))
            i = o
    return nn.Sequential(*layers, nn.BatchNorm2d(512), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100))


data = TensorDataset(torch.randn(1024, 3, 32, 32), torch.randint(0, 100, (1024,)))
loader = DataLoader(data, batch_size=128, shuffle=True, pin_memory=True, drop_last=True)
model = net().cuda()
averaged = AveragedModel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=5e-4)
anneal = SWALR(optimizer, swa_lr=0.05, anneal_epochs=1)
for epoch in range(2):
    for x, y in loader:
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        x[:, :, 8:16, 8:16] = 0
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    averaged.update_parameters(model)
    anneal.step()
update_bn(loader, averaged, device="cuda")
averaged.eval()
with torch.no_grad():
    print(sum((averaged(x.cuda()).argmax(1).cpu() == y).sum() for x, y in loader))
