"""What flash-attn returns for tests of dropout: each probability before its row's sum is divided out, negative where it was dropped."""

import torch

from .functions import attention

_AT_ONCE = 256  # values' dimensions, one for each key


def _together(dim):
    """Keys that flash-attn's kernels take together with dropout. A key's number is counted from the largest score of its block and of those behind it."""
    return 128 if dim <= 32 else 32 if 96 < dim <= 128 else 64


def _kept(q, keys, most, dropout, seed, **documents):
    """[batch, len_q, heads, most] which probabilities of a row's keys were kept: all are alike where q and k are 0, and values tell keys apart.
    keys: int [1, len_k], the number of each in its sequence."""
    zeros_q, zeros_k = q.new_zeros((*q.shape[:3], 8)), q.new_zeros((q.shape[0], keys.shape[1], 1, 8))
    parts = []
    for first in range(0, most, _AT_ONCE):
        here = torch.arange(first, min(first + _AT_ONCE, most), device=q.device)
        values = (keys[:, :, None, None] == here).to(q.dtype).expand(q.shape[0], -1, -1, -1)
        parts.append(attention(zeros_q, zeros_k, values, dropout_p=dropout, seed=seed, layout="blhd", **documents) > 0)
    return torch.cat(parts, -1) if parts else torch.empty((*q.shape[:3], 0), dtype=torch.bool, device=q.device)


def _numbers(q, k, of_q, of_k, scale, softcap, slopes, sides):
    """[batch, heads, len_q, len_k], 0 where a key is not seen. of_q, of_k: how many positions of each sequence there are; sides: of the window."""
    (_, len_q, heads, dim), len_k = q.shape, k.shape[1]
    k = k.repeat_interleave(heads // max(k.shape[2], 1), 2)
    scores = torch.einsum("bqhd,bkhd->bhqk", q.float(), k.float()) * (dim**-0.5 if scale is None else scale)
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    of_q, of_k = of_q[:, None, None, None], of_k[:, None, None, None]
    row, key = torch.arange(len_q, device=q.device)[:, None], torch.arange(len_k, device=q.device)
    at = row + of_k - of_q
    if slopes is not None:
        slopes = slopes.detach().float()
        scores = scores - (slopes if slopes.dim() == 2 else slopes[None])[:, :, None, None] * (at - key).abs()
    seen = (key < of_k) & (row < of_q)
    before, after = sides
    if before >= 0:
        seen = seen & (key >= at - before)
    if after >= 0:
        seen = seen & (key <= at + after)
    scores = scores.masked_fill(~seen, -torch.inf)
    largest = torch.stack([block.amax(-1) for block in scores.split(_together(dim), -1)], -1).flip(-1).cummax(-1).values.flip(-1)
    largest = largest.repeat_interleave(_together(dim), -1)[..., :len_k]
    return torch.where(seen, torch.exp(scores - largest), 0)


def padded(x, begins, most):
    """[documents, most, ...] of x [tokens, ...]; behind a document's end is whatever comes there."""
    at = begins[:-1, None].long() + torch.arange(most, device=x.device)
    return x[at.clamp(max=x.shape[0] - 1)] if x.shape[0] else x.new_zeros((*at.shape, *x.shape[1:]))


@torch.no_grad()
def with_signs_of_dropout(q, k, dtype, dropout, seed, scale, softcap, slopes, sides, cu_q=None, cu_k=None, most_q=None, most_k=None):
    """[batch, heads, len_q, len_k] of q and k [batch, len, heads, head_dim]; with cu_q [documents, heads, most_q, most_k] of packed documents."""
    q, k = q.to(dtype), k.to(dtype)
    if cu_q is None:
        lengths = [torch.full((q.shape[0],), t.shape[1], device=q.device) for t in (q, k)]
        keys = torch.arange(k.shape[1], device=q.device)[None]
        kept = _kept(q, keys, k.shape[1], dropout, seed)
    else:
        lengths = [cu_q.diff(), cu_k.diff()]
        of = torch.arange(k.shape[0], device=q.device)
        keys = of - cu_k[torch.searchsorted(cu_k[1:].contiguous(), of.int(), right=True).clamp(max=cu_k.shape[0] - 2)]
        kept = padded(_kept(q[None], keys[None], most_k, dropout, seed, cu_seqlens_q=cu_q[None], cu_seqlens_k=cu_k[None])[0], cu_q, most_q)
        q, k = padded(q, cu_q, most_q), padded(k, cu_k, most_k)
    if 0 in (q.shape[0], q.shape[1], k.shape[1]):
        return q.new_zeros((q.shape[0], q.shape[2], q.shape[1], k.shape[1]))
    numbers = _numbers(q, k, *lengths, scale, softcap, slopes, sides).to(dtype)
    return torch.where(kept.transpose(1, 2), numbers, -numbers)
