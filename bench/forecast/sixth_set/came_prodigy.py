"""Optimizers by hand, one after another on one transformer: CAME with factored confidence, Prodigy that finds its rate, Adam-mini with a moment a head; each is deleted before the next."""
import gc
import torch
import torch.nn as nn
import torch.nn.functional as F
class Came(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for p in (p for g in self.param_groups for p in g["params"] if p.grad is not None):
            g, s = p.grad.float(), self.state[p]
            if not s:
                s["m"] = torch.zeros_like(g)
                for name in (("row", "column", "crow", "ccolumn") if g.dim() == 2 else ("v",)):
                    s[name] = torch.zeros(g.shape[0] if "row" in name else g.shape[-1], device=g.device) if g.dim() == 2 else torch.zeros_like(g)
            def factored(square, row, column):
                s[row].lerp_(square.mean(1), 1e-3)
                s[column].lerp_(square.mean(0), 1e-3)
                return (s[row] / s[row].mean().clamp(min=1e-30)).rsqrt()[:, None] * s[column].rsqrt()[None]
            u = g * factored(g.square() + 1e-30, "row", "column") if g.dim() == 2 else g / s["v"].lerp_(g.square(), 1e-3).sqrt().add(1e-8)
            u /= (u.norm() / u.numel() ** 0.5).clamp(min=1.0)
            s["m"].lerp_(u, 0.1)
            if g.dim() == 2:
                u = s["m"] * factored((u - s["m"]).square() + 1e-16, "crow", "ccolumn")
            p.add_(u if g.dim() == 2 else s["m"], alpha=-self.param_groups[0]["lr"])
class Prodigy(torch.optim.Optimizer):
    def __init__(self, params, lr=1.0):
        super().__init__(params, dict(lr=lr, d=1e-6, r=0.0))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            ps = [p for p in group["params"] if p.grad is not None]
            for p in ps:
                if not self.state[p]:
                    self.state[p] = {"s": torch.zeros_like(p), "p0": p.clone(), "m": torch.zeros_like(p), "v": torch.zeros_like(p)}
            grads = [p.grad for p in ps]
            s, p0, m, v = ([self.state[p][k] for p in ps] for k in ("s", "p0", "m", "v"))
            d = group["d"]
            away = torch._foreach_sub(p0, ps)
            top = sum((a * g).sum() for a, g in zip(away, grads)) * d * d
            torch._foreach_lerp_(m, torch._foreach_mul(grads, d), 0.1)
            torch._foreach_mul_(v, 0.999)
            torch._foreach_addcmul_(v, grads, grads, d * d * 1e-3)
            torch._foreach_mul_(s, 0.999 ** 0.5)
            torch._foreach_add_(s, grads, alpha=d * d * (1 - 0.999 ** 0.5))
            bottom = torch.stack([n for n in torch._foreach_norm(s, 1)]).sum()
            group["r"] = 0.999 ** 0.5 * group["r"] + (1 - 0.999 ** 0.5) * top.item()
            group["d"] = max(d, group["r"] / max(bottom.item(), 1e-12))
            root = torch._foreach_sqrt(v)
            torch._foreach_add_(root, d * 1e-8)
            torch._foreach_addcdiv_(ps, m, root, value=-group["lr"] * d)
class Mini(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr))
    @torch.no_grad()
    def step(self):
        for p in (p for g in self.param_groups for p in g["params"] if p.grad is not None):
            s, parts = self.state[p], 8 if p.shape[0] % 8 == 0 and p.dim() > 1 else 1
            if not s:
                s["m"], s["v"] = torch.zeros_like(p), torch.zeros(parts, device=p.device)
            s["m"].lerp_(p.grad, 0.1)
            s["v"].lerp_(p.grad.view(parts, -1).square().mean(1), 0.001)
            p.sub_((s["m"].view(parts, -1) / (s["v"].sqrt() + 1e-8)[:, None]).view_as(p), alpha=self.param_groups[0]["lr"])
for make in (lambda p: Came(p, 1e-4), lambda p: Prodigy(p), lambda p: Mini(p, 1e-4)):
    torch.manual_seed(0)
    words, body = nn.Embedding(13003, 424).cuda(), nn.TransformerEncoder(nn.TransformerEncoderLayer(424, 8, 1700, 0.0, "gelu", batch_first=True, norm_first=True), 4, enable_nested_tensor=False).cuda()
    optimizer = make([*words.parameters(), *body.parameters()])
    for _ in range(4):
        ids = torch.randint(0, 13003, (6, 222), device="cuda")
        loss = F.cross_entropy((body(words(ids)) @ words.weight.T).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    print(loss.item(), torch.cuda.max_memory_allocated() // 2**20)
    del words, body, optimizer, loss
    gc.collect()
