"""FlashAttention-3's qv: scores q k^T + qv v^T, as a cache of latents (DeepSeek's) is read. No kernel of ours has so many dimensions of scores: these are
passes of torch's in float32, a block of rows at a time, forward and backward. On CUDA they wait for the card, to leave out the keys that no row of a block
sees; where code may not wait (compiled, captured, under transforms) they take all keys."""

import contextlib
from typing import Any, Optional, Tuple

import torch
from torch.utils.checkpoint import checkpoint

from .calls import KINDS, NAMES
from .checks import SERVED, cast, checked, options_of
from .direct import is_transformed
from .flash_checks import can_be_read

_SCORES = 1 << 24  # of a block


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


def check_qv(where: str, q: Any, k: Any, v: Any, qv: Any, sink: Any, of_keys: Tuple[str, str] = ("k", "v")) -> None:
    """qv beside q, with v's dimensions: [..., heads, dim]. attention_with_qv looks at the rest."""
    if sink is not None:
        raise NotImplementedError(f"gpu_headroom.torch.{where}: s_aux is not served with qv: leave one of them out")
    for name, t in zip(("q", *of_keys, "qv"), (q, k, v, qv)):
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"gpu_headroom.torch.{where}: {name} is a {type(t).__name__}, not a tensor")
        if t.dtype not in NAMES:
            raise TypeError(f"gpu_headroom.torch.{where}: {name} is {t.dtype}: served with qv are {SERVED}")
        if t.layout != torch.strided or t.is_nested:
            raise ValueError(f"gpu_headroom.torch.{where}: {name} is nested or sparse: only strided tensors are served")
    if qv.dtype != q.dtype or qv.device != q.device:
        raise TypeError(f"gpu_headroom.torch.{where}: qv is {qv.dtype} on {qv.device}, q is {q.dtype} on {q.device}")
    if qv.shape != (*q.shape[:-1], v.shape[-1]):
        raise ValueError(f"gpu_headroom.torch.{where}: qv is {tuple(qv.shape)}, it must be {(*q.shape[:-1], v.shape[-1])}: as q, with the values' dimensions")


def _check_list(name: str, cu: torch.Tensor, positions: int) -> None:
    """As the library says it of other calls."""
    if cu.is_cpu and can_be_read(cu):
        for b, ends in enumerate(cu.tolist()):
            if ends[0] != 0 or ends[-1] > positions or ends != sorted(ends):
                raise ValueError(f"gpu_headroom.torch: {name}[{b}] is {ends}: from 0 on, in order, up to {positions} positions")


def _seen_keys(low: torch.Tensor, high: torch.Tensor, keys: int) -> Tuple[int, int]:
    """The first key that any of the rows sees, and the end."""
    if low.device.type not in KINDS or not can_be_read(low):
        return 0, keys
    some = high > low
    return (int(low[some].min()), int(high[some].max())) if bool(some.any()) else (0, 0)


def attention_with_qv(
    q: torch.Tensor, qv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, sides: Tuple[int, int],
    scale: Optional[float], softcap: float, of: str = "attention",
) -> Tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    """(o, lse [batch, heads, len_q]) of q [batch, len_q, heads, dim], qv [..., dim_v], k and v. cu_q, cu_k: [batch, documents + 1]; sides: how many keys a row
    sees up to its own, and after. Refused is what attention() refuses, but for the values' dimensions."""
    q, qv, k, v = cast([q, qv, k, v])
    *_, cu_q, cu_k = checked(q, k, v[..., :256], None, 0.0, scale, True, "blhd", None, cu_q, cu_k, of=of)
    options_of(False, scale, None, "bottom-right", "blhd", None, False, None, softcap)
    for name, cu, t in (("cu_seqlens_q", cu_q, q), ("cu_seqlens_k", cu_k, k)):
        _check_list(name, cu, t.shape[1])
    scale = (q.shape[3] + v.shape[3]) ** -0.5 if scale is None else float(scale)
    of_device = q.device.type
    with torch.autocast(of_device, enabled=False) if of_device in KINDS and torch.is_autocast_enabled(of_device) else contextlib.nullcontext():
        return _passes(q, qv, k, v, cu_q.long(), cu_k.long(), sides, scale, softcap)


def _passes(
    q: torch.Tensor, qv: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, sides: Tuple[int, int], scale: float,
    softcap: float,
) -> Tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    batch, len_q, heads, _ = q.shape
    of_a_row = batch * heads * k.shape[1]
    if batch > 1 and of_a_row > _SCORES:
        halves = [t.split([batch // 2, batch - batch // 2]) for t in (q, qv, k, v, cu_q, cu_k)]
        os, lses = zip(*(_passes(q, qv, k, v, cu_q, cu_k, sides, scale, softcap) for q, qv, k, v, cu_q, cu_k in zip(*halves)))
        return torch.cat(os), torch.cat(lses)
    dtype = q.dtype
    differentiated = torch.is_grad_enabled() and any(t.requires_grad for t in (q, qv, k, v))
    if differentiated:  # gradients of keys are sums over blocks, added in float32
        k, v = k.float(), v.float()
    keeps_inputs = differentiated and not is_transformed()  # torch.func has no checkpoints
    step = max(1, _SCORES // max(1, of_a_row))
    made = []
    for first in range(0, len_q, step):
        end = min(first + step, len_q)
        low, high = _sides(torch.arange(first, end, device=q.device), cu_q, cu_k, *sides)
        from_key, to_key = _seen_keys(low, high, k.shape[1])
        here = q[:, first:end], qv[:, first:end], k[:, from_key:to_key], v[:, from_key:to_key], low - from_key, high - from_key, scale, softcap
        o, lse = checkpoint(_block, *here, use_reentrant=False, preserve_rng_state=False) if keeps_inputs else _block(*here)
        made.append((o.to(dtype), lse))
    if not made:
        return q.new_empty((batch, 0, heads, v.shape[-1])), q.new_empty((batch, heads, 0), dtype=torch.float32)
    return torch.cat([o for o, _ in made], 1), torch.cat([lse for _, lse in made], 2)
