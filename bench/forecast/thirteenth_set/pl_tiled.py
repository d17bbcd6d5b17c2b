"""Long texts in tiles by hand: MLPs and the loss by a Function of their own that goes through the sequence piece by piece, forward again in backward; 16 384 words."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


class Tiled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, fn, x, tiles, *weights):
        ctx.fn, ctx.tiles, ctx.weights = fn, tiles, weights
        ctx.save_for_backward(x)
        with torch.no_grad():
            return torch.cat([fn(part) for part in x.chunk(tiles, 1)], 1)

    @staticmethod
    def backward(ctx, grad):
        x, = ctx.saved_tensors
        x = x.detach()
        dx = torch.zeros_like(x)
        for part, g, out in zip(x.chunk(ctx.tiles, 1), grad.chunk(ctx.tiles, 1), dx.chunk(ctx.tiles, 1)):
            part = part.detach().requires_grad_()
            with torch.enable_grad():
                y = ctx.fn(part)
            torch.autograd.backward(y, g)
            out.copy_(part.grad)
        return (None, dx, None, *[None] * len(ctx.weights))


class TiledLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, labels, tiles):
        dx, dw, total = torch.empty_like(x), torch.zeros_like(weight), x.new_zeros((), dtype=torch.float)
        for part, y, out in zip(x.chunk(tiles), labels.chunk(tiles), dx.chunk(tiles)):
            scores = (part @ weight.T).float()
            total += F.cross_entropy(scores, y, reduction="sum")
            g = scores.softmax(-1)
            g[torch.arange(len(y), device=y.device), y] -= 1
            g = (g / len(labels)).to(x.dtype)
            out.copy_(g @ weight)
            dw.addmm_(g.T, part)
        ctx.save_for_backward(dx, dw)
        return total / len(labels)

    @staticmethod
    def backward(ctx, grad):
        dx, dw = ctx.saved_tensors
        return dx * grad, dw * grad, None, None


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.norm1, self.norm2 = heads, nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim, bias=False), nn.Linear(dim, dim, bias=False)
        self.up, self.down = nn.Linear(dim, 8 * dim, bias=False), nn.Linear(4 * dim, dim, bias=False)

    def mlp(self, x):
        a, b = self.up(self.norm2(x)).chunk(2, -1)
        return self.down(F.silu(a) * b)

    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + Tiled.apply(self.mlp, x, 8, self.up.weight, self.down.weight)


dim = 1024
embed, blocks, norm, head = nn.Embedding(32000, dim), nn.ModuleList(Block(dim, 16) for _ in range(4)), nn.RMSNorm(dim), nn.Linear(dim, 32000, bias=False)
model = nn.ModuleList([embed, blocks, norm, head]).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
for step in range(4):
    ids = torch.randint(0, 32000, (1, 16385), device="cuda")
    x = embed(ids[:, :-1])
    for block in blocks:
        x = block(x)
    loss = TiledLoss.apply(norm(x)[0], head.weight, ids[0, 1:], 16)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
