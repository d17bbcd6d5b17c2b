"""make_graphed_callables for two parts of a network at once under fp16 autocast, an eager part whose shape varies between them, a scaler."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Part(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(a, 1500), nn.SiLU(), nn.Linear(1500, 1500), nn.LayerNorm(1500), nn.SiLU(), nn.Linear(1500, b))
    def forward(self, x):
        return self.net(x)
one, two, middle = Part(300, 700).cuda(), Part(700, 99).cuda(), nn.GRU(700, 350, bidirectional=True, batch_first=True).cuda()
x1, x2 = torch.randn(64, 50, 300, device="cuda"), torch.randn(64, 50, 700, device="cuda", requires_grad=True)
with torch.autocast("cuda", torch.float16, cache_enabled=False):
    one, two = torch.cuda.make_graphed_callables((one, two), ((x1,), (x2,)), num_warmup_iters=5)
optimizer = torch.optim.SGD([*one.parameters(), *two.parameters(), *middle.parameters()], 0.01, momentum=0.9)
scaler = torch.amp.GradScaler()
for step in range(6):
    x = torch.randn(64, 50, 300, device="cuda")
    with torch.autocast("cuda", torch.float16, cache_enabled=False):
        h = one(x)
        keep = 30 + 4 * step
        m, _ = middle(h[:, :keep])
        loss = two(torch.cat((m, h[:, keep:]), 1)).float().square().mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=False)
    print(loss.item())
