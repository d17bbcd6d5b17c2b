"""Adam's moments wait in pinned memory and come to the card for their update, one tensor after another."""
import torch
import torch.nn as nn
torch.manual_seed(0)
model = nn.Sequential(*(m for _ in range(10) for m in (nn.Linear(1536, 1536), nn.ReLU()))).cuda()
moments = {p: (torch.zeros_like(p, device="cpu").pin_memory(), torch.zeros_like(p, device="cpu").pin_memory()) for p in model.parameters()}
for step in range(1, 5):
    loss = model(torch.randn(2048, 1536, device="cuda")).pow(2).mean()
    loss.backward()
    with torch.no_grad():
        for p, (m, v) in moments.items():
            a, b = m.to("cuda", non_blocking=True), v.to("cuda", non_blocking=True)
            a.lerp_(p.grad, 0.1)
            b.mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
            p.addcdiv_(a / (1 - 0.9 ** step), (b / (1 - 0.999 ** step)).sqrt() + 1e-8, value=-1e-3)
            m.copy_(a, non_blocking=True)
            v.copy_(b, non_blocking=True)
            p.grad = None
    torch.cuda.synchronize()
