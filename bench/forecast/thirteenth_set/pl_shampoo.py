"""Shampoo by hand with grafting: fourth roots by eigh every third step, blocks of 512, RMSNorm transformer in bf16, warm-up, evaluation by perplexity."""
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Shampoo(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.99), eps=1e-8, every=3, block=512):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, every=every, block=block))

    @staticmethod
    def root(m, eps):
        values, vectors = torch.linalg.eigh(m + eps * torch.eye(len(m), device=m.device))
        return (vectors * values.clamp_min(eps).pow(-0.25)) @ vectors.T

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            b1, b2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                    if p.ndim == 2 and max(p.shape) <= 8 * group["block"]:
                        state["blocks"] = [(i, j) for i in range(0, p.shape[0], group["block"]) for j in range(0, p.shape[1], group["block"])]
                        state["left"] = [torch.zeros(g.shape[0], g.shape[0], device=p.device) for g in (p[i:i + group["block"], j:j + group["block"]] for i, j in state["blocks"])]
                        state["right"] = [torch.zeros(g.shape[1], g.shape[1], device=p.device) for g in (p[i:i + group["block"], j:j + group["block"]] for i, j in state["blocks"])]
                        state["roots"] = [None] * len(state["blocks"])
                state["step"] += 1
                state["m"].lerp_(p.grad, 1 - b1)
                state["v"].mul_(b2).addcmul_(p.grad, p.grad, value=1 - b2)
                graft = state["m"] / (state["v"].sqrt() + group["eps"])
                if "blocks" in state:
                    update = torch.empty_like(p)
                    for k, (i, j) in enumerate(state["blocks"]):
                        at = (slice(i, i + group["block"]), slice(j, j + group["block"]))
                        g = p.grad[at]
                        state["left"][k].lerp_(g @ g.T, 1 - b2)
                        state["right"][k].lerp_(g.T @ g, 1 - b2)
                        if state["step"] % group["every"] == 1:
                            state["roots"][k] = self.root(state["left"][k], 1e-6), self.root(state["right"][k], 1e-6)
                        update[at] = state["roots"][k][0] @ state["m"][at] @ state["roots"][k][1]
                    graft = update * (graft.norm() / (update.norm() + 1e-12))
                p.mul_(1 - group["lr"] * 0.1).add_(graft, alpha=-group["lr"])


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.gate, self.up, self.down = nn.Linear(dim, 2 * dim, bias=False), nn.Linear(dim, 2 * dim, bias=False), nn.Linear(2 * dim, dim, bias=False)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


model = nn.Sequential(nn.Embedding(8000, 512), *[Block(512, 8) for _ in range(6)], nn.RMSNorm(512), nn.Linear(512, 8000, bias=False)).cuda()
optimizer = Shampoo(model.parameters(), lr=1e-3)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min(1, (n + 1) / 4))
data = torch.randint(0, 8000, (64, 513), device="cuda")


def loss_of(ids):
    with torch.autocast("cuda", dtype=torch.bfloat16):
        return F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())


for step in range(6):
    optimizer.zero_grad()
    loss_of(data[torch.randint(0, 64, (16,), device="cuda")]).backward()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
model.eval()
with torch.no_grad():
    print(math.exp(sum(loss_of(part).item() for part in data.split(32)) / 2))
