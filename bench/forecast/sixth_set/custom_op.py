"""Operators of one's own by torch.library: a fused add and norm with its backward, a rotation written in place, a loss that gives its gradient in forward."""
import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)
@torch.library.custom_op("own::add_norm", mutates_args=())
def add_norm(x: torch.Tensor, r: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    s = x + r
    rstd = torch.rsqrt(s.float().square().mean(-1, keepdim=True) + 1e-6)
    return (s.float() * rstd).to(x.dtype) * w, s, rstd
@add_norm.register_fake
def _(x, r, w):
    return torch.empty_like(x), torch.empty_like(x), x.new_empty(*x.shape[:-1], 1, dtype=torch.float32)
def keep(ctx, inputs, output):
    ctx.save_for_backward(output[1], output[2], inputs[2])
def back(ctx, dy, ds, _):
    s, rstd, w = ctx.saved_tensors
    n = s.float() * rstd
    dn = dy.float() * w
    dx = (rstd * (dn - n * (dn * n).mean(-1, keepdim=True))).to(s.dtype) + (0 if ds is None else ds)
    return dx, dx, (dy * n.to(dy.dtype)).sum((0, 1))
add_norm.register_autograd(back, setup_context=keep)
@torch.library.custom_op("own::turn_", mutates_args=("x",))
def turn_(x: torch.Tensor, angle: torch.Tensor) -> None:
    a, b = x[..., ::2].clone(), x[..., 1::2].clone()
    x[..., ::2] = a * angle.cos() - b * angle.sin()
    x[..., 1::2] = a * angle.sin() + b * angle.cos()
class Loss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, y):
        dx, dw, total = torch.empty_like(x), torch.zeros_like(w, dtype=torch.float32), x.new_zeros((), dtype=torch.float32)
        for a, b, out in zip(x.split(333), y.split(333), dx.split(333)):
            logits = (a @ w.T).float()
            log = logits.log_softmax(-1)
            total -= log.gather(1, b[:, None]).sum()
            p = log.exp_()
            p[torch.arange(len(b), device=b.device), b] -= 1
            p = p.to(x.dtype)
            out.copy_(p @ w)
            dw.addmm_(p.T.float(), a.float())
        ctx.save_for_backward(dx.div_(len(y)), dw.div_(len(y)).to(w.dtype))
        return total / len(y)
    @staticmethod
    def backward(ctx, g):
        dx, dw = ctx.saved_tensors
        return dx * g, dw * g, None
D = 600
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.w, self.qkv, self.o, self.up, self.down = nn.Parameter(torch.ones(D)), nn.Linear(D, 3 * D), nn.Linear(D, D), nn.Linear(D, 2300), nn.Linear(2300, D)
    def forward(self, x, r, angle):
        n, s, _ = torch.ops.own.add_norm(x, r, self.w)
        q, k, v = self.qkv(n).view(*x.shape[:2], 3, 10, 60).permute(2, 0, 3, 1, 4)
        q, k = q.clone(), k.clone()
        with torch.no_grad():
            turn_(q, angle), turn_(k, angle)
        h = self.o(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return self.down(F.gelu(self.up(h), approximate="tanh")), s
with torch.device("cuda"):
    words, blocks, head = nn.Embedding(17011, D).bfloat16(), nn.ModuleList(Block() for _ in range(5)).bfloat16(), nn.Linear(D, 17011, bias=False).bfloat16()
    angle = (torch.arange(517)[:, None] * torch.pow(10000.0, -torch.arange(30) / 30)).bfloat16()
everything = [*words.parameters(), *blocks.parameters(), *head.parameters()]
optimizer = torch.optim.NAdam(everything, 1e-4)
for _ in range(4):
    ids = torch.randint(0, 17011, (5, 518), device="cuda")
    x = words(ids[:, :-1])
    r = torch.zeros_like(x)
    for block in blocks:
        x, r = block(x, r, angle)
    loss = Loss.apply((x + r).flatten(0, 1), head.weight, ids[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item())
