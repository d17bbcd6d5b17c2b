"""A schedule-free optimizer by hand, written with foreach; evaluated at the average."""
import torch
import torch.nn as nn
from torchvision.models import resnet34
torch.manual_seed(0)
model = resnet34(num_classes=20).cuda().to(memory_format=torch.channels_last)
class ScheduleFree(torch.optim.Optimizer):
    def __init__(self, weights, lr):
        super().__init__(weights, dict(lr=lr, steps=0))
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            for p in ps:
                if not self.state[p]:
                    self.state[p].update(z=p.clone(), v=torch.zeros_like(p))
            gs, zs, vs = [p.grad for p in ps], [self.state[p]["z"] for p in ps], [self.state[p]["v"] for p in ps]
            group["steps"] += 1
            torch._foreach_mul_(vs, 0.999)
            torch._foreach_addcmul_(vs, gs, gs, value=0.001)
            scale = torch._foreach_sqrt(vs)
            torch._foreach_add_(scale, 1e-8)
            torch._foreach_lerp_(ps, zs, 1 / group["steps"])
            torch._foreach_addcdiv_(zs, gs, scale, value=-group["lr"])
    @torch.no_grad()
    def eval(self):
        for p in model.parameters():
            p.lerp_(self.state[p]["z"], 1 - 1 / 0.9)
optimizer = ScheduleFree(model.parameters(), 1e-3)
for epoch in range(2):
    model.train()
    for step in range(3):
        images = torch.randn(32, 3, 160, 160, device="cuda").contiguous(memory_format=torch.channels_last)
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = nn.functional.cross_entropy(model(images), torch.randint(0, 20, (32,), device="cuda"))
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    optimizer.eval()
    model.eval()
    with torch.no_grad(), torch.autocast("cuda", dtype=torch.bfloat16):
        model(torch.randn(64, 3, 160, 160, device="cuda"))
