"""A learning rate is looked for with copies of weights and optimizer, then training begins anew and stops early."""
import copy
import math
import torch
import torch.nn as nn
from torchvision.models import vgg11_bn
torch.manual_seed(0)
model = vgg11_bn(num_classes=10).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5, momentum=0.9)
kept = copy.deepcopy(model.state_dict()), copy.deepcopy(optimizer.state_dict())
def batch(n):
    return torch.randn(n, 3, 96, 96, device="cuda"), torch.randint(0, 10, (n,), device="cuda")
def train(n):
    x, y = batch(n)
    loss = nn.functional.cross_entropy(model(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()
least = math.inf
for i in range(5):
    loss = train(32)
    least = min(least, loss)
    if loss > 4 * least:
        break
    optimizer.param_groups[0]["lr"] *= 3
model.load_state_dict(kept[0])
optimizer.load_state_dict(kept[1])
del kept
waiting, low = 0, math.inf
for epoch in range(6):
    train(64)
    with torch.no_grad():
        model.eval()
        x, y = batch(128)
        loss = nn.functional.cross_entropy(model(x), y).item()
        model.train()
    waiting, low = (0, loss) if loss < low else (waiting + 1, low)
    if waiting == 3:
        break
