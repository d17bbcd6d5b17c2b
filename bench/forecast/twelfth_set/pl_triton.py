"""Kernels of Triton as the tutorials have them: a fused RMS norm with locks in backward, an autotuned product, softmax; a network trained with them."""
import torch
import torch.nn as nn
import torch.nn.functional as F
import triton
import triton.language as tl


@triton.jit
def norm_forward(X, Y, W, R, stride, N, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    c = tl.arange(0, BLOCK)
    x = tl.load(X + row * stride + c, mask=c < N, other=0.0).to(tl.float32)
    r = 1 / tl.sqrt(tl.sum(x * x, 0) / N + eps)
    tl.store(R + row, r)
    tl.store(Y + row * stride + c, x * r * tl.load(W + c, mask=c < N), mask=c < N)


@triton.jit
def norm_backward(DX, DY, X, W, R, DW, stride, N, ROWS, BLOCK: tl.constexpr):
    first = tl.program_id(0) * ROWS
    c = tl.arange(0, BLOCK)
    w = tl.load(W + c, mask=c < N, other=0.0)
    dw = tl.zeros([BLOCK], tl.float32)
    for i in range(ROWS):
        at = (first + i) * stride + c
        x, dy, r = tl.load(X + at, mask=c < N, other=0.0).to(tl.float32), tl.load(DY + at, mask=c < N, other=0.0).to(tl.float32), tl.load(R + first + i)
        g = dy * w
        tl.store(DX + at, (g - x * r * r * tl.sum(g * x, 0) / N) * r, mask=c < N)
        dw += dy * x * r
    tl.store(DW + tl.program_id(0) * N + c, dw, mask=c < N)


@triton.autotune(configs=[triton.Config({"M_": m, "N_": n, "K_": 32}, num_warps=4, num_stages=3) for m, n in ((64, 64), (128, 64), (128, 128))], key=["M", "N", "K"])
@triton.jit
def product(A, B, C, M, N, K, M_: tl.constexpr, N_: tl.constexpr, K_: tl.constexpr):
    m, n, k = tl.program_id(0) * M_ + tl.arange(0, M_), tl.program_id(1) * N_ + tl.arange(0, N_), tl.arange(0, K_)
    total = tl.zeros((M_, N_), tl.float32)
    for start in range(0, K, K_):
        a = tl.load(A + m[:, None] * K + start + k[None], mask=m[:, None] < M, other=0.0)
        b = tl.load(B + n[None] * K + start + k[:, None], mask=n[None] < N, other=0.0)
        total = tl.dot(a, b, total)
    tl.store(C + m[:, None] * N + n[None], total.to(C.dtype.element_ty), mask=(m[:, None] < M) & (n[None] < N))


class Norm(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        rows, n = x.shape
        y, r = torch.empty_like(x), torch.empty(rows, device=x.device)
        norm_forward[(rows,)](x, y, w, r, x.stride(0), n, 1e-6, BLOCK=triton.next_power_of_2(n))
        ctx.save_for_backward(x, w, r)
        return y

    @staticmethod
    def backward(ctx, dy):
        x, w, r = ctx.saved_tensors
        rows, n = x.shape
        dx, parts = torch.empty_like(x), torch.empty(rows // 32, n, device=x.device)
        norm_backward[(rows // 32,)](dx, dy.contiguous(), x, w, r, parts, x.stride(0), n, 32, BLOCK=triton.next_power_of_2(n))
        return dx, parts.sum(0)


def multiplied(a, b):
    c = torch.empty(a.shape[0], b.shape[0], device=a.device, dtype=a.dtype)
    product[lambda o: (triton.cdiv(a.shape[0], o["M_"]), triton.cdiv(b.shape[0], o["N_"]))](a, b, c, a.shape[0], b.shape[0], a.shape[1])
    return c


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w):
        ctx.save_for_backward(x, w)
        return multiplied(x, w)

    @staticmethod
    def backward(ctx, dy):
        x, w = ctx.saved_tensors
        return multiplied(dy.contiguous(), w.t().contiguous()), multiplied(dy.t().contiguous(), x.t().contiguous())


torch.manual_seed(0)
ups = nn.ParameterList(nn.Parameter(torch.randn(4096, 1024, device="cuda", dtype=torch.bfloat16) * 0.02) for _ in range(6))
downs = nn.ParameterList(nn.Parameter(torch.randn(1024, 4096, device="cuda", dtype=torch.bfloat16) * 0.02) for _ in range(6))
scales = nn.ParameterList(nn.Parameter(torch.ones(1024, device="cuda")) for _ in range(6))
optimizer = torch.optim.AdamW([*ups, *downs, *scales], lr=1e-3)
for step in range(4):
    x = torch.randn(8192, 1024, device="cuda", dtype=torch.bfloat16)
    for up, down, scale in zip(ups, downs, scales):
        x = x + Linear.apply(F.silu(Linear.apply(Norm.apply(x, scale), up)), down)
    loss = x.float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(loss.item())
