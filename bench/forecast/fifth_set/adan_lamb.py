"""Adan and LAMB by hand with foreach operations, a mixer of 9 layers."""
import torch
import torch.nn as nn
torch.manual_seed(0)
class Adan(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            gs = [p.grad for p in ps]
            for p in ps:
                if not self.state[p]:
                    self.state[p].update(m=torch.zeros_like(p), v=torch.zeros_like(p), n=torch.zeros_like(p), last=-p.grad.clone())
            m, v, n, last = ([self.state[p][k] for p in ps] for k in ("m", "v", "n", "last"))
            torch._foreach_add_(last, gs)
            torch._foreach_lerp_(m, gs, 0.02)
            torch._foreach_lerp_(v, last, 0.08)
            torch._foreach_mul_(last, 0.92)
            torch._foreach_add_(last, gs)
            torch._foreach_mul_(n, 0.99)
            torch._foreach_addcmul_(n, last, last, 0.01)
            d = torch._foreach_sqrt(n)
            torch._foreach_add_(d, 1e-8)
            u = torch._foreach_add(m, v, alpha=0.92)
            torch._foreach_div_(u, d)
            torch._foreach_add_(ps, u, alpha=-group["lr"])
            torch._foreach_copy_(last, torch._foreach_neg(gs))
class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3):
        super().__init__(params, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                s = self.state[p]
                if not s:
                    s["m"], s["v"] = torch.zeros_like(p), torch.zeros_like(p)
                s["m"].mul_(0.9).add_(p.grad, alpha=0.1)
                s["v"].mul_(0.999).addcmul_(p.grad, p.grad, value=0.001)
                u = s["m"] / (s["v"].sqrt() + 1e-6) + 0.01 * p
                w, n = p.norm(), u.norm()
                trust = w / n if w > 0 and n > 0 else 1.0
                p.add_(u, alpha=-group["lr"] * float(trust))
class Block(nn.Module):
    def __init__(self, d, n):
        super().__init__()
        self.a, self.b = nn.LayerNorm(d), nn.LayerNorm(d)
        self.t, self.c = nn.Sequential(nn.Linear(n, 2 * n), nn.GELU(), nn.Linear(2 * n, n)), nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x):
        x = x + self.t(self.a(x).transpose(1, 2)).transpose(1, 2)
        return x + self.c(self.b(x))
for kind in (Adan, Lamb):
    model = nn.Sequential(*(Block(300, 121) for _ in range(9))).cuda()
    optimizer = kind(model.parameters())
    for step in range(4):
        loss = model(torch.randn(37, 121, 300, device="cuda")).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item())
    del model, optimizer, loss
