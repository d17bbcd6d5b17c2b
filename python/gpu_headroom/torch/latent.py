"""FlashAttention-3's qv: scores q k^T + qv v^T, as a cache of latents (DeepSeek's) is read. No kernel of ours has so many dimensions of scores: these are
passes of torch's in float32, a block of rows at a time, forward and backward. On CUDA they wait for the card."""

from typing import Any, Optional, Tuple

import torch
from torch.utils.checkpoint import checkpoint

from .calls import NAMES
from .checks import SERVED

_SCORES = 1 << 24  # of a block
OPEN = 1 << 31  # keys on a side of a window that has no end there


def _sides(row: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, before: int, after: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """The first key that each of these rows sees, and the end, int64 [batch, rows]: equal where there is none. Aligned at the end of each document."""
    of = torch.searchsorted(cu_q[:, 1:].contiguous(), row.expand(cu_q.shape[0], -1).contiguous(), right=True)
    inside = (of < cu_q.shape[1] - 1) & (row >= cu_q[:, :1])
    of = of.clamp(max=cu_q.shape[1] - 2)
    begin, end, last = cu_k.gather(1, of), cu_k.gather(1, of + 1), cu_q.gather(1, of + 1)
    at = row - last + end
    low, high = torch.maximum(begin, at - before + 1), torch.minimum(end, at + after + 1)
    return torch.where(inside, low, 0), torch.where(inside, torch.maximum(low, high), 0)


def _block(
    q: torch.Tensor, qv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, low: torch.Tensor, high: torch.Tensor, scale: float, softcap: float
) -> Tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(o [batch, rows, heads, dim_v] in float32, lse [batch, heads, rows]); keys are counted from the first of k."""
    batch, rows, heads, _ = q.shape
    q, qv = (t.float().unflatten(2, (k.shape[2], -1)) for t in (q, qv))
    k, v = k.float(), v.float()
    scores = (torch.einsum("bqhgd,bkhd->bhgqk", q, k) + torch.einsum("bqhgd,bkhd->bhgqk", qv, v)) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    key = torch.arange(k.shape[1], device=k.device)
    seen = ((key >= low[..., None]) & (key < high[..., None]))[:, None, None]
    scores = torch.where(seen, scores, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    p = torch.where(seen, torch.exp(scores - lse.masked_fill(lse == -torch.inf, 0)[..., None]), 0)
    o = torch.einsum("bhgqk,bkhd->bqhgd", p, v)
    return o.flatten(2, 3), lse.reshape(batch, heads, rows)


def check_qv(where: str, q: Any, k: Any, v: Any, qv: Any, sink: Any) -> None:
    """qv beside q, with v's dimensions: [..., heads, dim]. attention() is not asked, so the others are looked at here too."""
    if sink is not None:
        raise NotImplementedError(f"gpu_headroom.torch.{where}: s_aux is not served with qv: leave one of them out")
    for name, t in (("q", q), ("k", k), ("v", v), ("qv", qv)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"gpu_headroom.torch.{where}: {name} is a {type(t).__name__}, not a tensor")
        if t.dtype not in NAMES or t.dtype != q.dtype or t.device != q.device:
            raise TypeError(f"gpu_headroom.torch.{where}: {name} is {t.dtype} on {t.device} beside qv: all have one type of {SERVED}, and one device")
    if k.shape[:-1] != v.shape[:-1] or q.shape[-1] != k.shape[-1] or k.shape[-2] == 0 or q.shape[-2] % k.shape[-2]:
        shapes = f"q is {tuple(q.shape)}, k is {tuple(k.shape)} and v is {tuple(v.shape)}"
        raise ValueError(f"gpu_headroom.torch.{where}: {shapes}: k has q's head_dim, k and v have as many keys and heads, and these divide q's heads")
    if qv.shape != (*q.shape[:-1], v.shape[-1]):
        raise ValueError(f"gpu_headroom.torch.{where}: qv is {tuple(qv.shape)}, it must be {(*q.shape[:-1], v.shape[-1])}: as q, with the values' dimensions")


def attention_with_qv(
    q: torch.Tensor, qv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, sides: Tuple[int, int],
    scale: Optional[float], softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(o, lse [batch, heads, len_q]) of q [batch, len_q, heads, dim], qv [..., dim_v], k and v. cu_q, cu_k: [batch, documents + 1]; sides: how many keys a row
    sees up to its own, and after."""
    batch, len_q, heads, dim = q.shape
    scale = (dim + v.shape[-1]) ** -0.5 if scale is None else float(scale)
    cu_q, cu_k = cu_q.long(), cu_k.long()
    keeps = torch.is_grad_enabled() and any(t.requires_grad for t in (q, qv, k, v))
    step = max(1, _SCORES // max(1, batch * heads * k.shape[1]))
    os, lses = [], []
    for first in range(0, len_q, step):
        end = min(first + step, len_q)
        low, high = _sides(torch.arange(first, end, device=q.device), cu_q, cu_k, *sides)
        some = high > low
        from_key, to_key = (int(low[some].min()), int(high[some].max())) if bool(some.any()) else (0, 0)
        here = q[:, first:end], qv[:, first:end], k[:, from_key:to_key], v[:, from_key:to_key], low - from_key, high - from_key, scale, softcap
        o, lse = checkpoint(_block, *here, use_reentrant=False, preserve_rng_state=False) if keeps else _block(*here)
        os.append(o.to(q.dtype))
        lses.append(lse)
    if not os:
        return q.new_empty((batch, 0, heads, v.shape[-1])), q.new_empty((batch, heads, 0), dtype=torch.float32)
    return torch.cat(os, 1), torch.cat(lses, 2)
