"""What PyTorch eager holds, measured: the peer of `headroom memory ... --as pytorch`.

Two programs, written the way most people write them. Prints one CSV line per problem; MB = 2**20 bytes, as
torch.cuda.memory_allocated counts them.

  python3 pytorch_memory.py attention   one-head attention, the two protocols of docs/memory-as-pytorch.md
  python3 pytorch_memory.py lm          a training step of the language model (presets.py), AdamW
"""
import gc
import math
import sys

import torch
import torch.nn.functional as F
from torch import nn

from presets import PRESETS

MB = 2**20
live = lambda: torch.cuda.memory_allocated() / MB
peak = lambda: torch.cuda.max_memory_allocated() / MB
reset = torch.cuda.reset_peak_memory_stats


def composed(x):
    x = x - torch.max(x, dim=-1, keepdim=True)[0]
    e = torch.exp(x)
    return e / torch.sum(e, dim=-1, keepdim=True)


def attention(q, k, v, softmax, mask=None):
    scores = q @ k.transpose(-2, -1) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = torch.where(mask, scores, float("-inf"))
    weights = softmax(scores)
    return weights @ v


def builtin(x):
    return torch.softmax(x, dim=-1)


def fused(q, k, v, _=None):
    return F.scaled_dot_product_attention(q.unsqueeze(1), k.unsqueeze(1), v.unsqueeze(1)).squeeze(1)


class Linear(nn.Module):
    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(n_out, n_in, device="cuda") * 0.02)

    def forward(self, x):
        return F.linear(x, self.weight)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width, device="cuda"))

    def forward(self, x):
        dtype = x.dtype
        x = x.float()
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5)
        return (self.weight * x).to(dtype)


def rope(x, cos, sin):
    a, b = x[..., 0::2], x[..., 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), dim=-1).flatten(-2)


class Block(nn.Module):
    def __init__(self, width, ffn, heads, kind):
        super().__init__()
        self.heads, self.kind = heads, kind
        self.norm1, self.norm2 = Norm(width), Norm(width)
        self.q, self.k, self.v, self.o = (Linear(width, width) for _ in range(4))
        self.up, self.gate, self.down = Linear(width, ffn), Linear(width, ffn), Linear(ffn, width)

    def attend(self, x, cos, sin):
        b, n, w = x.shape
        q, k, v = (f(x).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rope(q, cos, sin), rope(k, cos, sin)
        if self.kind == "naive":
            mask = torch.ones(n, n, dtype=torch.bool, device="cuda").tril()
            o = attention(q, k, v, builtin, mask)
        else:
            o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(o.transpose(1, 2).reshape(b, n, w))

    def forward(self, x, cos, sin):
        x = x + self.attend(self.norm1(x), cos, sin)
        h = self.norm2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


class LM(nn.Module):
    def __init__(self, vocab, width, ffn, layers, heads, length, kind):
        super().__init__()
        self.embed = nn.Embedding(vocab, width, device="cuda")
        self.blocks = nn.ModuleList(Block(width, ffn, heads, kind) for _ in range(layers))
        self.norm, self.head = Norm(width), Linear(width, vocab)
        d = width // heads
        angle = torch.outer(torch.arange(length), 10000.0 ** (-torch.arange(0, d, 2) / d)).cuda()
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        return self.head(self.norm(x))


def lm_row(name, length, precision, kind, batch=4, vocab=10000, layers=None):
    gc.collect()
    torch.cuda.empty_cache()
    torch._C._cuda_clearCublasWorkspaces()
    width, ffn, depth, heads = PRESETS[name]
    model = LM(vocab, width, ffn, layers or depth, heads, length, kind)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    tokens = torch.randint(vocab, (batch, length + 1), device="cuda")
    x, y = tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()
    for step in range(3):
        reset()
        with torch.autocast("cuda", torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(model(x).view(-1, vocab), y.view(-1))
        forward, before = peak(), live()
        loss.backward()
        both, after = peak(), live()
        reset()
        optimizer.step()
        step_peak = peak()
        optimizer.zero_grad(set_to_none=True)
        held = live()
    print(f"{name},{length},{precision},{kind},{layers or depth},{before:.6g},{forward:.6g},{both:.6g},{after:.6g},{step_peak:.6g},{held:.6g}", flush=True)


def attention_rows(dims, lens, softmax, dtype, batch=8):
    for d in dims:
        for n in lens:
            q, k, v = (torch.randn(batch, n, d, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3))
            form = (lambda: fused(q, k, v)) if softmax is fused else (lambda: attention(q, k, v, softmax))
            o = form()
            before = live()
            d_o = torch.randn_like(o)
            del o
            reset()
            for _ in range(3):
                o = form()
                o.backward(d_o)
            given = peak()
            del o, d_o
            for _ in range(2):
                reset()
                base = live()
                loss = form().sum()
                forward, saved = peak(), live() - base
                reset()
                loss.backward()
                backward = peak()
                del loss
                loss = None
            print(f"{softmax.__name__},{dtype},{d},{n},{before:.6g},{given:.6g},{saved:.6g},{forward:.6g},{backward:.6g}", flush=True)
            del q, k, v


if __name__ == "__main__":
    print(torch.__version__, torch.cuda.get_device_name())
    if sys.argv[1] == "attention":
        print("softmax,dtype,dim,len,given_before,given_peak,sum_saved,sum_forward_peak,sum_backward_peak")
        for softmax in builtin, composed, fused:
            for dtype in torch.float32, torch.bfloat16:
                attention_rows([16, 128], [256, 1024, 4096], softmax, dtype)
    else:
        print("model,len,precision,attention,layers,before_backward,forward_peak,forward_backward_peak,after_backward,step_peak,held")
        for name in sys.argv[2].split(","):
            for length in 128, 1024:
                for precision, kind in ("fp32", "naive"), ("bf16", "naive"), ("bf16", "fused"), ("fp32", "fused"):
                    lm_row(name, length, precision, kind)
