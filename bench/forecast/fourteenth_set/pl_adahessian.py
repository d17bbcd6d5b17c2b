"""AdaHessian by hand: a GPT's gradients keep their graph, Hutchinson's products with random signs, averaged over heads, attention by plain products, blocks in FP32."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.heads, self.n1, self.n2 = heads, nn.LayerNorm(d), nn.LayerNorm(d)
        self.qkv, self.out, self.up, self.down = nn.Linear(d, 3 * d), nn.Linear(d, d), nn.Linear(d, 4 * d), nn.Linear(4 * d, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (y.view(b, t, self.heads, -1).transpose(1, 2) for y in self.qkv(self.n1(x)).chunk(3, -1))
        scores = (q @ k.transpose(-2, -1)) * q.size(-1) ** -0.5
        scores = scores.masked_fill(torch.triu(torch.ones(t, t, dtype=torch.bool, device=x.device), 1), float("-inf"))
        x = x + self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, d))
        return x + self.down(F.gelu(self.up(self.n2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self, words=8000, d=384, layers=6, heads=6, length=256):
        super().__init__()
        self.word, self.place = nn.Embedding(words, d), nn.Parameter(torch.zeros(length, d))
        self.blocks, self.norm, self.head = nn.Sequential(*[Block(d, heads) for _ in range(layers)]), nn.LayerNorm(d), nn.Linear(d, words, bias=False)
        self.head.weight = self.word.weight

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.word(ids) + self.place[:ids.size(1)])))


class AdaHessian(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1, betas=(0.9, 0.999), eps=1e-4):
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps))

    def step(self):
        ps = [p for g in self.param_groups for p in g["params"] if p.grad is not None and p.grad.requires_grad]
        signs = [torch.randint_like(p, 0, 2) * 2 - 1 for p in ps]
        curved = torch.autograd.grad([p.grad for p in ps], ps, grad_outputs=signs)
        with torch.no_grad():
            for p, h, z in zip(ps, curved, signs):
                h = (h * z).abs()
                if p.ndim == 2:
                    h = h.mean(1, keepdim=True).expand_as(h).contiguous()
                state, g = self.state[p], self.param_groups[0]
                if not state:
                    state["t"], state["m"], state["v"] = 0, torch.zeros_like(p), torch.zeros_like(p)
                state["t"] += 1
                state["m"].mul_(g["betas"][0]).add_(p.grad.detach(), alpha=1 - g["betas"][0])
                state["v"].mul_(g["betas"][1]).addcmul_(h, h, value=1 - g["betas"][1])
                p.addcdiv_(state["m"] / (1 - g["betas"][0] ** state["t"]), (state["v"] / (1 - g["betas"][1] ** state["t"])).sqrt() + g["eps"], value=-g["lr"])


model = GPT().cuda()
optimizer = AdaHessian(model.parameters())
for step in range(5):
    ids = torch.randint(0, 8000, (8, 256), device="cuda")
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
    loss.backward(create_graph=True)
    optimizer.step()
    for p in model.parameters():
        p.grad = None
print(loss.item())
