"""What the tests of gpu_headroom.torch share: random tensors, and attention in FP64. Without torch they skip: exit code 77."""

import sys
import unittest

try:
    import torch
except ImportError:
    print("skipped: torch is not installed (make test-torch brings it)")
    sys.exit(77)

import torch.nn.attention

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])
FUSED = [torch.nn.attention.SDPBackend.FLASH_ATTENTION, torch.nn.attention.SDPBackend.EFFICIENT_ATTENTION]
TOLERANCE = {torch.float32: 2e-5, torch.float16: 4e-3, torch.bfloat16: 3e-2}


def visible(len_q, len_k, is_causal=False, window=None, align="top-left"):
    if not is_causal and window is None:
        return torch.ones(len_q, len_k, dtype=torch.bool)
    row, key = torch.arange(len_q)[:, None], torch.arange(len_k)[None]
    at = row + (len_k - len_q if align == "bottom-right" else 0)
    seen = key <= at
    if window is None:
        return seen
    before, after = window if isinstance(window, tuple) else (window, 0)
    return (key <= at + after) & (key > at - before)


def reference(q, k, v, scale=None, softcap=0.0, sink=None, seen=None, **mask):
    """o and lse in FP64, [batch, heads, len, dim]; a row that sees nothing gives 0 and -inf. seen: [batch, 1, len_q, len_k]."""
    q, k, v = (x.double().cpu() for x in (q, k, v))
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    s = (q @ k.transpose(-1, -2)) * scale
    s = softcap * torch.tanh(s / softcap) if softcap else s
    s = s.masked_fill(~(visible(q.shape[2], k.shape[2], **mask) if seen is None else seen), -torch.inf)
    if sink is not None:
        s = torch.cat([s, sink.double().cpu()[None, :, None, None].expand(*s.shape[:3], 1)], -1)
    lse = torch.logsumexp(s, -1)
    s = s[..., : k.shape[2]]
    p = torch.exp(s - torch.where(lse.isinf(), 0, lse)[..., None])
    return p @ v, lse


def packed(cu_q, cu_k, len_q, len_k, **mask):
    """What documents see: [batch, 1, len_q, len_k]; masks hold inside each, bottom-right."""
    seen = torch.zeros(len(cu_q), 1, len_q, len_k, dtype=torch.bool)
    for b, (of_q, of_k) in enumerate(zip(cu_q, cu_k)):
        for q0, q1, k0, k1 in zip(of_q, of_q[1:], of_k, of_k[1:]):
            seen[b, 0, q0:q1, k0:k1] = visible(q1 - q0, k1 - k0, align="bottom-right", **mask)
    return seen


def tensors(device="cpu", dtype=torch.float32, batch=2, heads=4, kv_heads=2, len_q=33, len_k=40, dim=16, seed=0, grad=True):
    g = torch.Generator().manual_seed(seed)
    shapes = (batch, heads, len_q, dim), (batch, kv_heads, len_k, dim), (batch, kv_heads, len_k, dim)
    return [torch.randn(s, generator=g).to(device, dtype).requires_grad_(grad) for s in shapes]


class Base(unittest.TestCase):
    def near(self, got, want, dtype, what=""):
        got, want = got.detach().double().cpu(), want.detach().double().cpu()
        apart = torch.where(got == want, 0, (got - want).abs()).max().item() if got.numel() else 0.0
        self.assertLess(apart, TOLERANCE[dtype] * (1 + want[want.isfinite()].abs().max().item() if want.numel() else 1), what)
