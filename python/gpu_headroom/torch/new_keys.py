"""New keys and values of a cache: turned by their positions, and written behind what each sequence has."""

from typing import Optional, Tuple, Union

import torch

from .caches import each_of, stays, steady, up_to

Tensor = Optional[torch.Tensor]


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, at: torch.Tensor, interleaved: bool) -> torch.Tensor:
    """x [batch, len, heads, head_dim] with rotary embeddings of the positions `at`, [batch, len or 1]."""
    if at.is_cuda:  # a position behind the last one would end the work on the card
        at = at.clamp(max=cos.shape[0] - 1)
    try:
        c, s = (torch.embedding(t, at).float().unsqueeze(2) for t in (cos, sin))
    except IndexError:
        raise IndexError(f"gpu_headroom.torch: rotary_cos and rotary_sin have {cos.shape[0]} positions, and a row is at {int(at.max())}") from None
    turns = 2 * c.shape[-1]
    first = (x if turns == x.shape[-1] else x[..., :turns]).float()
    a, b = first.reshape(*first.shape[:-1], c.shape[-1], 2).unbind(-1) if interleaved else first.chunk(2, -1)
    parts = a * c - b * s, a * s + b * c
    made = (torch.stack(parts, -1).flatten(-2) if interleaved else torch.cat(parts, -1)).to(x.dtype)
    return made if turns == x.shape[-1] else torch.cat([made, x[..., turns:]], -1)


def behind(before: Union[int, torch.Tensor], length: int, like: torch.Tensor) -> torch.Tensor:
    """int64 [batch or 1, length]: positions from `before` on, how many keys each sequence has, [batch], or one for all."""
    if length == 1 and isinstance(before, torch.Tensor) and before.dim():
        return before.unsqueeze(1).long()
    steps = steady(stays(like), like.device, up_to, length)
    return before.unsqueeze(1) + steps if isinstance(before, torch.Tensor) and before.dim() else (before + steps).unsqueeze(0)


def turned_behind(
    before: Union[int, torch.Tensor], at: torch.Tensor, q: torch.Tensor, k: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor, interleaved: bool, moves: bool
) -> Tuple[torch.Tensor, torch.Tensor]:
    """q and k turned. at: the positions of k, from `before` on; moves: q's rows are at positions of their own, from the same first on."""
    if moves and q.shape[1] == k.shape[1] and q.dtype == k.dtype:  # together, in half as many passes
        both = turned(torch.cat([q, k], 2), cos, sin, at, interleaved)
        return both.narrow(2, 0, q.shape[2]), both.narrow(2, q.shape[2], k.shape[2])
    of_q = behind(before, q.shape[1] if moves else 1, q)
    return turned(q, cos, sin, of_q, interleaved), turned(k, cos, sin, at, interleaved)


def append(caches: Tuple[torch.Tensor, torch.Tensor], new: Tuple[torch.Tensor, torch.Tensor], at: torch.Tensor, pages: Tensor, rows: Tensor) -> None:
    """Writes new keys and values, [batch, new, kv_heads, head_dim], at these positions of each sequence, in place. pages or rows: where sequences are.
    All was checked."""
    (batch, length), like = new[0].shape[:2], caches[0]
    if pages is not None:
        page = like.shape[1]
        where = pages.gather(1, torch.div(at, page, rounding_mode="floor").expand(batch, length)).long(), at % page
    else:
        where = steady(stays(like), like.device, each_of, batch) if rows is None else rows.long().unsqueeze(1), at
    for cache, t in zip(caches, new):
        cache.index_put_(where, t)
