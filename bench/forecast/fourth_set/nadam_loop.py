"""NAdam without foreach and Adamax with it, in turns on two halves of a network; weights clipped by value."""
import torch
import torch.nn as nn
torch.manual_seed(0)
left = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024)).cuda()
right = nn.Sequential(nn.Linear(1024, 4096), nn.Dropout(0.2), nn.ReLU(), nn.Linear(4096, 256)).cuda()
first = torch.optim.NAdam(left.parameters(), lr=1e-3, foreach=False, decoupled_weight_decay=True)
second = torch.optim.Adamax(right.parameters(), lr=1e-3, foreach=True)
for step in range(8):
    loss = right(left(torch.randn(4096, 1024, device="cuda"))).logsumexp(1).mean()
    loss.backward()
    optimizer = first if step % 2 == 0 else second
    nn.utils.clip_grad_value_([*left.parameters(), *right.parameters()], 0.1)
    optimizer.step()
    first.zero_grad()
    second.zero_grad()
