"""flash_attn_with_kvcache as flash-attn and FlashAttention-3 have it, where the batch is not packed: checks, new keys, and the call over the cache."""

from typing import Any, NamedTuple, Optional, Tuple, Union

import torch

from .caches import again, key_of
from .checks import cast, whole_number
from .flash_checks import (
    IN_8_BITS, can_be_read, check_caches, check_lengths, check_new, check_pages, check_room, check_whole, check_within, checked_once, flag, forms_of, room_of, wide,
)  # fmt: skip
from .functions import attention, attention_with_cache, checked_over_cache, slopes_over_cache
from .new_keys import append, behind, turned_behind

Tensor = Optional[torch.Tensor]
WithLse = Tuple[torch.Tensor, torch.Tensor]
Options = Tuple[Any, Any, Any, Any]  # is_causal, scale, window and softcap


class Asked(NamedTuple):
    """A call's tensors. where, table: how errors name the function, and its table of pages."""

    where: str
    table: str
    q: Any
    k_cache: Any
    v_cache: Any
    k: Any
    v: Any
    cos: Any
    sin: Any
    lengths: Any
    rows: Any
    pad: Any
    pages: Any
    slopes: Any
    sink: Any


def _as_it_will_be(t: torch.Tensor) -> torch.Tensor:
    """Shape, type and place of what a call is given for t: not in 8 bits, at most 256 dimensions of values at once, and as autocast makes it."""
    one = cast([t[tuple(slice(0, 1) for _ in t.shape)]])[0]
    return (one.bfloat16() if one.dtype in IN_8_BITS else one).expand(t.shape)


def check_over_cache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, rows: Tensor, pages: Tensor, slopes: Tensor, sink: Tensor, options: Options
) -> None:
    """What attention_with_cache() would refuse, whatever numbers there are in tensors. rows: which of the cache's sequences, or of the table's, q has."""
    q, k_cache, v_cache = (_as_it_will_be(t) for t in (q, k_cache, v_cache[..., :256]))
    if rows is not None and pages is not None:
        pages = pages[:1].expand(q.shape[0], -1)
    elif rows is not None:
        k_cache, v_cache = (t[:1].expand(q.shape[0], *t.shape[1:]) for t in (k_cache, v_cache))
    is_causal, scale, window, softcap = options
    checked_over_cache(q, k_cache, v_cache, pages, is_causal, scale, window, "blhd", None, None, softcap, sink, slopes)


def _check_read(c: Asked, lengths: Union[int, torch.Tensor]) -> None:
    """What the library refuses on a CPU, looked at before anything is written. lengths: with the new keys."""
    if c.pages is not None and c.k_cache.is_cpu and can_be_read(c.pages):
        table, (pages, page) = c.pages.tolist(), c.k_cache.shape[:2]
        ends = lengths.tolist() if isinstance(lengths, torch.Tensor) else lengths
        for row, end in zip(table, ends if isinstance(ends, list) else [ends] * len(table)):
            wrong = [n for n in row[: -(-end // page)] if not 0 <= n < pages]
            if wrong:
                raise ValueError(f"gpu_headroom.torch.{c.where}: {c.table} names page {wrong[0]}: there are pages 0 to {pages - 1}")
    if c.slopes is not None and c.slopes.is_cpu and can_be_read(c.slopes) and not bool(c.slopes.isfinite().all()):
        raise ValueError(f"gpu_headroom.torch.{c.where}: alibi_slopes has a number that is not finite")


def _check_form(c: Asked, options: Options) -> None:
    """Whatever would go wrong behind the first write into the caches, or be read as something else, but for numbers in tensors."""
    where, q = c.where, c.q
    check_caches(where, q, c.k_cache, c.v_cache)
    check_new(where, (c.k_cache, c.v_cache), c.k, c.v, c.cos, c.sin, c.lengths, q.shape[0])
    for name, t in (("cache_leftpad", c.pad), ("cache_batch_idx", c.rows)):
        if t is not None and c.pages is not None:
            raise NotImplementedError(f"gpu_headroom.torch.{where}: {name} is not served with {c.table}: leave it out")
        if t is not None:
            check_whole(where, name, t, (q.shape[0],), q)
    if c.pages is not None:
        check_pages(where, c.table, c.pages, q.shape[0], q)
    check_lengths(where, c.lengths, q.shape[0], q)
    room = room_of(c.k_cache, c.pages)
    if c.cos is not None and c.cos.shape[0] < room and (c.pages is not None or c.table == "block_table"):
        have = "the pages of a sequence have" if c.table == "page_table" else "the cache has"
        raise ValueError(f"gpu_headroom.torch.{where}: rotary_cos has {c.cos.shape[0]} positions, {have} room for {room}")
    if c.k is not None:
        check_over_cache(q, c.k_cache, c.v_cache, c.rows, c.pages, c.slopes, c.sink, options)


def _check_numbers(c: Asked) -> None:
    check_room(c.where, c.lengths, 0 if c.k is None else c.k.shape[1], room_of(c.k_cache, c.pages), c.pages is not None)
    if c.rows is not None:
        check_within(c.where, "cache_batch_idx", c.rows, 0, c.k_cache.shape[0] - 1)
    if c.pad is not None:
        check_within(c.where, "cache_leftpad", c.pad, 0, 1 << 31)


def _with_form(key: Any, c: Asked) -> Any:
    """What decides whether new keys and values fit; None: look each time."""
    form = forms_of((c.k, c.v, c.cos, c.sin))
    return None if form is None else (key, form)


def _again(key: Any, c: Asked, lengths: Any) -> Any:
    """What attention_with_cache() gives where it was asked for such a call before, else None."""
    return again(key, c.q, c.k_cache, c.v_cache, lengths, c.pages, c.sink, c.slopes, "blhd", slopes_over_cache, True)


def over_cache(c: Asked, options: Options, interleaved: Any) -> WithLse:
    """(o, lse) of a call, whose new keys are written first. interleaved: which dimensions rotary embeddings turn together."""
    is_causal, scale, window, softcap = options
    if isinstance(c.lengths, torch.Tensor) and isinstance(c.q, torch.Tensor) and c.lengths.dim() == 0 and c.lengths.device != c.q.device:
        check_lengths(c.where, c.lengths, 0, c.q)
        c = c._replace(lengths=int(c.lengths))
    lengths, pad = wide(c.lengths), wide(c.pad)
    if lengths is not c.lengths or pad is not c.pad:
        c = c._replace(lengths=lengths, pad=pad)
    key = None
    of_one_row = isinstance(c.pages, torch.Tensor) and c.pages.dim() != 2  # attention_with_cache() takes it
    if c.rows is None and c.pad is None and not of_one_row and not torch.compiler.is_compiling():
        key = key_of(c.q, c.k_cache, c.v_cache, c.lengths, c.pages, c.sink, c.slopes, (is_causal, scale, window, "blhd", None, None, softcap))
    if key is not None and c.k is None and c.v is None and c.cos is None and c.sin is None:
        if c.pages is not None and not c.q.is_cpu:  # waits for the card, as flash-attn's does
            check_room(c.where, c.lengths, 0, room_of(c.k_cache, c.pages), True)
        out = _again(key, c, c.lengths)
        if out is not None:
            return out
    checked_once(forms_of(c[2:], options) if key is None else _with_form(key, c), _check_form, c, options)
    _check_numbers(c)
    q, k_cache, v_cache, lengths = c.q, c.k_cache, c.v_cache, c.lengths
    if c.k is not None and c.v is not None and lengths is not None:
        before = lengths if isinstance(lengths, torch.Tensor) else whole_number(lengths)
        lengths, k = before + c.k.shape[1], c.k
        _check_read(c, lengths)
        at = behind(before, k.shape[1], k)
        if c.cos is not None and c.sin is not None:
            moves = is_causal or window is not None
            q, k = turned_behind(before, at, q, k, c.cos, c.sin, flag("rotary_interleaved", interleaved), moves)
        append((k_cache, v_cache), (k, c.v), at, c.pages, c.rows)
        out = None if key is None or q is not c.q else _again(key, c, lengths)
        if out is not None:
            return out
    if c.rows is not None:  # a copy of the sequences that are asked for
        rows = c.rows.long()
        k_cache, v_cache = k_cache[rows], v_cache[rows]
    named: Any = {"is_causal": is_causal, "scale": scale, "window": window, "layout": "blhd", "softcap": softcap, "sink": c.sink, "alibi_slopes": c.slopes}
    if c.pad is None:
        return attention_with_cache(q, k_cache, v_cache, lengths, c.pages, return_lse=True, **named)
    return _behind_padding(c.pad, q, k_cache, v_cache, lengths, named)


def _behind_padding(pad: torch.Tensor, q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, lengths: Any, named: Any) -> WithLse:
    """What is before a sequence is a document without queries."""
    ends = torch.full_like(pad, k_cache.shape[1]) if lengths is None else lengths + torch.zeros_like(pad)
    none = torch.zeros_like(ends)
    of_q, of_k = torch.stack([none, none, none + q.shape[1]], 1).int(), torch.stack([none, torch.minimum(pad, ends), ends], 1).int()
    return attention(q, k_cache, v_cache, align="bottom-right", return_lse=True, cu_seqlens_q=of_q, cu_seqlens_k=of_k, **named)
