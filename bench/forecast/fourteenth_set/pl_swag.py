"""SWAG: mean, squares and the last ten deviations of the weights kept on the card beside training, models drawn from them, batch norms set anew, predictions averaged."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import torchvision
from torch.nn.utils import parameters_to_vector, vector_to_parameters
from torch.optim.swa_utils import update_bn

torch.manual_seed(0)
net = torchvision.models.densenet121(weights=None, num_classes=100, drop_rate=0.1).cuda()
optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9, weight_decay=3e-4)
mean, square, deviations = None, None, []
for step in range(14):
    x, y = torch.randn(32, 3, 96, 96, device="cuda"), torch.randint(0, 100, (32,), device="cuda")
    loss = F.cross_entropy(net(x), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step >= 2:
        w = parameters_to_vector(net.parameters()).detach()
        n = step - 2
        mean = w if mean is None else (mean * n + w) / (n + 1)
        square = w ** 2 if square is None else (square * n + w ** 2) / (n + 1)
        deviations.append(w - mean)
        if len(deviations) > 10:
            deviations.pop(0)
said = 0
held = torch.randn(128, 3, 96, 96, device="cuda")
for draw in range(4):
    with torch.no_grad():
        d = torch.stack(deviations, 1)
        w = mean + (square - mean ** 2).clamp(min=1e-30).sqrt() * torch.randn_like(mean) / 2 ** 0.5 + d @ torch.randn(d.size(1), device="cuda") / (2 * (d.size(1) - 1)) ** 0.5
        vector_to_parameters(w, net.parameters())
        update_bn([torch.randn(32, 3, 96, 96) for _ in range(2)], net, device="cuda")
        net.eval()
        said = said + net(held).softmax(1) / 4
print(loss.item(), said.max(1).values.mean().item())
