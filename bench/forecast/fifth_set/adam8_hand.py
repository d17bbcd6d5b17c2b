"""Adam with both moments in 8 bits by blocks of 2048, quantised by hand with a table of 256 values."""
import torch
import torch.nn as nn
torch.manual_seed(0)
signed = torch.linspace(-1, 1, 256, device="cuda").pow(3)
class Adam8(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))
    def pack(self, x):
        pad = -x.numel() % 2048
        blocks = nn.functional.pad(x.flatten(), (0, pad)).view(-1, 2048)
        scale = blocks.abs().amax(1, keepdim=True).clamp_min(1e-12)
        return torch.bucketize(blocks / scale, signed).clamp_max(255).to(torch.uint8), scale
    def unpack(self, packed, like):
        codes, scale = packed
        return (signed[codes.int()] * scale).flatten()[:like.numel()].view_as(like)
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                m = self.unpack(s["m"], p) if s else torch.zeros_like(p)
                v = self.unpack(s["v"], p) if s else torch.zeros_like(p)
                m.lerp_(p.grad, 0.1)
                v.mul_(0.99).addcmul_(p.grad, p.grad, value=0.01)
                p.addcdiv_(m, v.sqrt().add_(1e-6), value=-group["lr"])
                s["m"], s["v"] = self.pack(m), self.pack(v)
model = nn.Sequential(nn.Linear(900, 3600), nn.GELU(), nn.Linear(3600, 3600), nn.GELU(), nn.Linear(3600, 900)).cuda()
optimizer = Adam8(model.parameters())
for step in range(5):
    x = torch.randn(333, 900, device="cuda")
    loss = (model(x) - x).pow(2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
