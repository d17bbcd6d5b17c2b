"""The functions of FlashAttention-3 (its module flash_attn_interface) by their names and arguments, over our attention, on CPU and CUDA, float32 too.

    from gpu_headroom.torch.flash_attn_3 import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

q, k and v in 8 bits are made bfloat16 first, with their scales, and calls with qv are passes of torch's (latent.py). What only tunes the kernel (num_splits,
pack_gqa, sm_margin, scheduler_metadata) is taken, and changes nothing.
"""

from typing import Any, Callable, List, NamedTuple, Optional, Tuple, Union

import torch

from .checks import one_line, whole_number
from .direct import without_gradients
from .dropped import padded
from .flash_caches import Asked, check_over_cache, over_cache
from .flash_checks import (
    IN_8_BITS, cap_of, check_caches, check_ends, check_lengths, check_list, check_new, check_page_numbers, check_pages, check_room, check_tensor, check_used,
    check_whole, flag, in_range, mask_of, wide,
)  # fmt: skip
from .functions import Window, attention, attention_varlen, attention_with_cache
from .latent import attention_with_qv, check_qv
from .masks import OPEN
from .new_keys import turned

Tensor = Optional[torch.Tensor]
WithLse = Tuple[torch.Tensor, torch.Tensor]


def _sides(causal: bool, window: Window) -> Tuple[int, int]:
    """How many keys a row sees up to its own, and after."""
    return (window[0], window[1]) if isinstance(window, tuple) else (OPEN, 0 if causal else OPEN)


def _chunk(name: str, attention_chunk: Any) -> int:
    size: Optional[int] = whole_number(attention_chunk)
    if size is None or size < 0:
        raise ValueError(f"gpu_headroom.torch.flash_attn_3.{name}: attention_chunk is {one_line(attention_chunk)}: a number of keys, or 0 for no chunks")
    return size


def _check_scales(scales: Any, t: torch.Tensor, batch: Optional[int]) -> None:
    """Whether scales are [batch, kv_heads] for t [..., heads, head_dim]; without a batch any number of sequences will do."""
    check_tensor("flash_attn_3", "a descale", scales, (2,), "[batch, kv_heads]", t)
    if scales.shape[1] == 0 or t.shape[-2] % scales.shape[1] or (batch is not None and scales.shape[0] != batch):
        raise ValueError(f"gpu_headroom.torch.flash_attn_3: a descale is {tuple(scales.shape)}, it must be [batch, kv_heads] for {tuple(t.shape)}")


def _of_8_bits(t: torch.Tensor, scales: Tensor, of_rows: Tensor = None) -> torch.Tensor:
    """t [..., heads, head_dim] as bfloat16 where it is in 8 bits. scales: [batch, kv_heads]; of_rows: which row of them a packed token has."""
    if not isinstance(t, torch.Tensor) or t.dtype not in IN_8_BITS:  # attention() refuses what is no tensor
        return t
    t = t.float()
    if scales is not None:
        _check_scales(scales, t, t.shape[0] if of_rows is None else None)
        scales = scales.repeat_interleave(t.shape[-2] // scales.shape[1], 1)
        t = t * (scales[:, None] if of_rows is None else scales[of_rows])[..., None]
    return t.bfloat16()


def _by_parts(call: Callable[[torch.Tensor], Any], v: torch.Tensor) -> Any:
    """What call(v) returns, o or (o, lse), made of parts of 256 dimensions of v where it has more."""
    made = [call(part) for part in v.split(256, -1)] if v.shape[-1] > 256 else [call(v)]
    if len(made) == 1:
        return made[0]
    return torch.cat(made, -1) if isinstance(made[0], torch.Tensor) else (torch.cat([o for o, _ in made], -1), made[0][1])


def _sequence_of(cu: torch.Tensor, tokens: int) -> Tuple[torch.Tensor, torch.Tensor]:
    """(the sequence of each packed token, its place there)."""
    at = torch.arange(tokens, device=cu.device)
    of = torch.searchsorted(cu[1:].contiguous(), at.int(), right=True).clamp(max=max(cu.shape[0] - 2, 0))
    return of, at - cu[of]


def _lists(
    begins: Tuple[torch.Tensor, torch.Tensor], used: Tuple[torch.Tensor, torch.Tensor], ends: Tuple[torch.Tensor, torch.Tensor], chunk: int, most_k: int,
    skipped: Tensor = None,
) -> List[torch.Tensor]:  # fmt: skip
    """int32 [sequences, parts], where each part of a sequence begins, of queries and of keys: rows before the first chunk, keys that are skipped, chunks of
    keys with their rows, rows that are not used, keys that are not. used counts from begins, and skipped is a part of it."""
    of_q, of_k = (t[:, None] for t in used)
    none = torch.zeros_like(of_q)
    first = none if skipped is None else skipped[:, None]
    chunks = torch.arange(max(1, -(-most_k // chunk)), device=of_q.device) * chunk if chunk else none
    keys = torch.minimum(chunks, of_k - first) + first
    rows = torch.minimum((chunks - (of_k - first - of_q)).clamp(min=0), of_q) if chunk else none
    q = torch.cat([none, rows[:, :1], rows, of_q, (ends[0] - begins[0])[:, None]], 1) + begins[0][:, None]
    k = torch.cat([none, none, keys, of_k, of_k], 1) + begins[1][:, None]
    return [q.int(), k.int()]


def _closed(parts: List[torch.Tensor], rows: int) -> List[torch.Tensor]:
    """The parts of each sequence, or of all behind one another, with an end of the last: rows behind the last sequence see no keys."""
    q, k = parts
    return [torch.cat([q, q.new_full((q.shape[0], 1), rows)], 1), torch.cat([k, k[:, -1:]], 1)]


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, softmax_scale: Optional[float] = None, causal: bool = False, qv: Tensor = None,
    q_descale: Tensor = None, k_descale: Tensor = None, v_descale: Tensor = None, window_size: Tuple[int, int] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: Optional[bool] = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False, s_aux: Tensor = None,
) -> Union[torch.Tensor, WithLse]:  # fmt: skip
    """q: [batch, len_q, heads, head_dim]; k and v: [batch, len_k, kv_heads, head_dim]. return_attn_probs: (o, lse).

    qv: as q, with the values' dimensions: scores are q k^T + qv v^T, and a softmax_scale that is None counts the dimensions of both.
    s_aux: [heads], a sink of each head, as the builds of vLLM and transformers have it.
    attention_chunk: rows see the keys of their own chunk of so many, counted from the first key.
    """
    for name, t in (("q", q), ("k", k), ("v", v)):
        check_tensor("flash_attn_3.flash_attn_func", name, t, (4,), "[batch, len, heads, head_dim]")
    if qv is not None:
        check_qv("flash_attn_3.flash_attn_func", q, k, v, qv, s_aux)
    chunk = _chunk("flash_attn_func", attention_chunk)
    q, k, v = (_of_8_bits(t, scales) for t, scales in ((q, q_descale), (k, k_descale), (v, v_descale)))
    documents = {}
    if chunk or qv is not None:
        lengths = [torch.full((q.shape[0],), t.shape[1], device=q.device) for t in (q, k)]
        none = torch.zeros_like(lengths[0])
        parts = _lists((none, none), (lengths[0], lengths[1]), (lengths[0], lengths[1]), chunk, k.shape[1])
        documents = dict(zip(("cu_seqlens_q", "cu_seqlens_k"), _closed(parts, q.shape[1])))
    is_causal, window = mask_of(causal, window_size)
    return_attn_probs = flag("return_attn_probs", return_attn_probs)
    if qv is not None:
        of_q, of_k = documents.values()
        o, lse = attention_with_qv(q, qv, k, v, of_q, of_k, _sides(is_causal, window), softmax_scale, cap_of(softcap))
        return (o, lse) if return_attn_probs else o
    options: Any = {"is_causal": is_causal, "window": window, "align": "bottom-right", "deterministic": flag("deterministic", deterministic), "sink": s_aux}
    options.update(documents)
    call = lambda v: attention(q, k, v, scale=softmax_scale, layout="blhd", softcap=cap_of(softcap), return_lse=return_attn_probs, **options)  # noqa: E731
    return _by_parts(call, v)


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor, softmax_scale: Optional[float] = None, causal: bool = False, q_descale: Tensor = None, k_descale: Tensor = None,
    v_descale: Tensor = None, window_size: Tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0, deterministic: bool = False,
    num_heads_q: Optional[int] = None, sm_margin: int = 0, return_attn_probs: bool = False,
) -> Union[torch.Tensor, WithLse]:  # fmt: skip
    """qkv: [batch, len, 3, heads, head_dim]; with num_heads_q [batch, len, heads + 2 kv_heads, head_dim]."""
    where = "flash_attn_3.flash_attn_qkvpacked_func"
    check_tensor(where, "qkv", qkv, (4, 5), "[batch, len, 3, heads, head_dim], or [batch, len, heads + 2 kv_heads, head_dim] with num_heads_q")
    if qkv.dim() == 5:
        if qkv.shape[2] != 3:
            raise ValueError(f"gpu_headroom.torch.{where}: qkv is {tuple(qkv.shape)}: a tensor [batch, len, 3, heads, head_dim]")
        q, k, v = qkv.unbind(-3)
    else:
        heads = whole_number(num_heads_q)
        if heads is None:
            raise ValueError(f"gpu_headroom.torch.{where}: qkv of four dimensions needs num_heads_q, a whole number")
        if heads < 1 or heads >= qkv.shape[2] or (qkv.shape[2] - heads) % 2:
            raise ValueError(f"gpu_headroom.torch.{where}: num_heads_q is {heads}: {qkv.shape[2]} heads are those and twice the key heads")
        kv_heads = (qkv.shape[2] - heads) // 2
        q, k, v = qkv.split([heads, kv_heads, kv_heads], -2)
    return flash_attn_func(q, k, v, softmax_scale, causal, None, q_descale, k_descale, v_descale, window_size, attention_chunk, softcap,
                           deterministic=deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int,
    seqused_q: Tensor = None, seqused_k: Tensor = None, softmax_scale: Optional[float] = None, causal: bool = False, qv: Tensor = None,
    q_descale: Tensor = None, k_descale: Tensor = None, v_descale: Tensor = None, window_size: Tuple[int, int] = (-1, -1), attention_chunk: int = 0,
    softcap: float = 0.0, num_splits: int = 1, pack_gqa: Optional[bool] = None, deterministic: bool = False, sm_margin: int = 0,
    return_attn_probs: bool = False, s_aux: Tensor = None,
) -> Union[torch.Tensor, WithLse]:  # fmt: skip
    """q: [tokens, heads, head_dim]; k and v: [tokens_k, kv_heads, head_dim]. seqused_q, seqused_k: how many tokens of each sequence there are, int32; the
    rest of its queries give 0. return_attn_probs: (o, lse [heads, tokens])."""
    where = "flash_attn_3.flash_attn_varlen_func"
    chunk = _chunk("flash_attn_varlen_func", attention_chunk)
    if qv is not None:
        check_qv(where, q, k, v, qv, s_aux)
    for name, t in (("q", q), ("k", k), ("v", v)):
        check_tensor(where, name, t, (3,), "[tokens, heads, head_dim]")
    for name, cu in (("cu_seqlens_q", cu_seqlens_q), ("cu_seqlens_k", cu_seqlens_k)):
        check_list(where, name, cu, q)
    if any(t.dtype in IN_8_BITS for t in (q, k, v)):
        of = {name: _sequence_of(cu, t.shape[0])[0] for name, cu, t in (("q", cu_seqlens_q, q), ("k", cu_seqlens_k, k))}
        q, k, v = (_of_8_bits(t, scales, of[at]) for t, scales, at in ((q, q_descale, "q"), (k, k_descale, "k"), (v, v_descale, "k")))
    if chunk or seqused_q is not None or seqused_k is not None:
        most_k = _longest(where, max_seqlen_k, k.shape[0]) if chunk else 0
        for name, t, cu in (("seqused_q", seqused_q, cu_seqlens_q), ("seqused_k", seqused_k, cu_seqlens_k)):
            if t is not None:
                check_whole(where, name, t, (cu.shape[0] - 1,), q)
                check_used(where, name, t, cu)
        begins, ends = (cu_seqlens_q[:-1], cu_seqlens_k[:-1]), (cu_seqlens_q[1:], cu_seqlens_k[1:])
        used = ends[0] - begins[0] if seqused_q is None else wide(seqused_q), ends[1] - begins[1] if seqused_k is None else wide(seqused_k)
        parts = [t.flatten()[None] for t in _lists(begins, used, ends, chunk, most_k)]
        cu_seqlens_q, cu_seqlens_k = (t[0] for t in _closed(parts, q.shape[0]))
    is_causal, window = mask_of(causal, window_size)
    return_attn_probs = flag("return_attn_probs", return_attn_probs)
    if qv is not None:
        q, qv, k, v = (t[None] for t in (q, qv, k, v))
        o, lse = attention_with_qv(q, qv, k, v, cu_seqlens_q, cu_seqlens_k, _sides(is_causal, window), softmax_scale, cap_of(softcap))
        return (o[0], lse[0]) if return_attn_probs else o[0]
    options: Any = {"is_causal": is_causal, "window": window, "return_lse": return_attn_probs, "deterministic": flag("deterministic", deterministic)}
    options["sink"] = s_aux
    call = lambda v: attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, scale=softmax_scale, softcap=cap_of(softcap), **options)  # noqa: E731
    return _by_parts(call, v)


def _longest(where: str, most: Any, otherwise: int) -> int:
    """max_seqlen_k, which chunks need; all tokens where it is None."""
    number: Optional[int] = otherwise if most is None else whole_number(most)
    if number is None or number < 0:
        raise TypeError(f"gpu_headroom.torch.{where}: max_seqlen_k is {one_line(most)}: a whole number")
    return number


def flash_attn_combine(out_partial: torch.Tensor, lse_partial: torch.Tensor, out: Tensor = None, out_dtype: Optional[torch.dtype] = None) -> WithLse:
    """(o, lse) of o [splits, batch, len, heads, head_dim] and lse [splits, batch, len, heads], each of a share of the keys; or without the batch."""
    where = "flash_attn_3.flash_attn_combine"
    check_tensor(where, "out_partial", out_partial, (4, 5), "[splits, batch, len, heads, head_dim], or without the batch")
    check_tensor(where, "lse_partial", lse_partial, (out_partial.dim() - 1,), "as out_partial without head_dim", out_partial)
    if not (lse_partial.is_floating_point() and out_partial.is_floating_point()) or lse_partial.shape != out_partial.shape[:-1] or lse_partial.shape[0] == 0:
        raise ValueError(f"gpu_headroom.torch.{where}: lse_partial is {lse_partial.dtype} {tuple(lse_partial.shape)} and out_partial {out_partial.dtype} "
                         f"{tuple(out_partial.shape)}: floating-point numbers of at least one share, lse_partial without head_dim")  # fmt: skip
    largest = lse_partial.amax(0)
    weights = torch.exp(lse_partial - torch.where(largest.isinf(), 0, largest))
    total = weights.sum(0)
    weights = (weights / torch.where(total == 0, 1, total))[..., None]
    made = (torch.where(weights > 0, out_partial.float(), 0) * weights).sum(0).to(out_dtype or out_partial.dtype)  # a share of no keys may hold anything
    if out is not None:
        made = out.copy_(made)
    return made, torch.logsumexp(lse_partial, 0)


def get_scheduler_metadata(*asked: Any, **named: Any) -> None:
    """What flash_attn_with_kvcache takes as scheduler_metadata: nothing here needs it."""


_WHERE = "flash_attn_3.flash_attn_with_kvcache"


class _New(NamedTuple):
    """New keys and values as the cache's function gets them: [batch, new, heads, head_dim], or packed."""

    k: Tensor
    v: Tensor
    cu_seqlens: Tensor
    cos: Tensor
    sin: Tensor
    turned_from: Tensor
    interleaved: bool


class _Cache(NamedTuple):
    """Where keys and values are: rows, the cache's row of each sequence, or None where they are its own; room, how many keys a sequence has place for."""

    k: torch.Tensor
    v: torch.Tensor
    pages: Tensor
    rows: Tensor
    room: int


def _batch(q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, cu_q: Tensor, most_q: Optional[int]) -> int:
    """How many sequences there are."""
    check_caches(_WHERE, q, k_cache, v_cache, 4 if cu_q is None else 3)
    if cu_q is None:
        return q.shape[0]
    check_list(_WHERE, "cu_seqlens_q", cu_q, q)
    most = whole_number(most_q)
    if most is None or most < 0:
        raise ValueError(f"gpu_headroom.torch.{_WHERE}: cu_seqlens_q needs max_seqlen_q, a whole number, and it is {one_line(most_q)}")
    check_ends(_WHERE, "cu_seqlens_q", cu_q, q.shape[0], most)
    return cu_q.shape[0] - 1


def _cache(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, pages: Tensor, rows: Tensor, leftpad: Tensor, batch: int) -> _Cache:
    if pages is not None:
        check_pages(_WHERE, "page_table", pages, batch if rows is None else None, q)
    if rows is not None:  # among the table's rows, where there are pages
        check_whole(_WHERE, "cache_batch_idx", rows, (batch,), q, 0, (k if pages is None else pages).shape[0] - 1)
    if leftpad is not None:
        check_whole(_WHERE, "cache_leftpad", leftpad, (batch,), q, 0, 1 << 31)
    return _Cache(k, v, pages, None if rows is None else rows.long(), k.shape[1] * (1 if pages is None else pages.shape[1]))


def _lengths(given: Union[None, int, torch.Tensor], new: _New, cache: _Cache, batch: int, device: torch.device) -> torch.Tensor:
    """How many keys of each sequence are in the cache before the new ones, or an error in one sentence."""
    check_new(_WHERE, (cache.k, cache.v), new.k, new.v, new.cos, new.sin, given, batch if new.cu_seqlens is None else None)
    if new.k is not None and new.cu_seqlens is not None:
        check_list(_WHERE, "cu_seqlens_k_new", new.cu_seqlens, cache.k)
        if new.cu_seqlens.shape[0] != batch + 1:
            raise ValueError(f"gpu_headroom.torch.{_WHERE}: cu_seqlens_k_new is {tuple(new.cu_seqlens.shape)}, it must be ({batch + 1},)")
        check_ends(_WHERE, "cu_seqlens_k_new", new.cu_seqlens, new.k.shape[0])
    if new.turned_from is not None:
        check_whole(_WHERE, "rotary_seqlens", new.turned_from, (batch,), cache.k)
    check_lengths(_WHERE, given, batch, cache.k)
    check_room(_WHERE, given, 0 if new.k is None or new.cu_seqlens is not None else new.k.shape[1], cache.room, cache.pages is not None)
    if cache.pages is not None and new.cos is not None and new.cos.shape[0] < cache.room:
        raise ValueError(f"gpu_headroom.torch.{_WHERE}: rotary_cos has {new.cos.shape[0]} positions, the pages of a sequence have room for {cache.room}")
    if not isinstance(given, torch.Tensor) or not given.dim():
        return torch.full((batch,), cache.room if given is None else int(given), dtype=torch.int32, device=device)
    return given


def _places(t: torch.Tensor, cu: Tensor) -> Tuple[torch.Tensor, torch.Tensor]:
    """(the sequence, its place there) of each token of t, [tokens, …] with cu and [batch, len, …] without."""
    if cu is not None:
        return _sequence_of(cu, t.shape[0])
    batch, length = t.shape[:2]
    return torch.arange(batch, device=t.device).repeat_interleave(length), torch.arange(length, device=t.device).repeat(batch)


def _append(new: _New, q: torch.Tensor, of_q: Any, moves: bool, cache: _Cache, lengths: torch.Tensor) -> WithLse:
    """Writes what is new behind each sequence; (q, lengths with the new keys). With rotary embeddings k and q are turned first, and moves says whether
    the rows of q stand at positions of their own."""
    if new.k is None or new.v is None:
        return q, lengths
    of, place = _places(new.k, new.cu_seqlens)
    k, v, grown = new.k, new.v, lengths + (new.k.shape[1] if new.cu_seqlens is None else new.cu_seqlens.diff())
    if new.cu_seqlens is None:
        k, v = k.flatten(0, 1), v.flatten(0, 1)
    else:
        check_room(_WHERE, grown, 0, cache.room, cache.pages is not None)
    if new.cos is not None and new.sin is not None:
        begins, (of_token, in_sequence) = (lengths if new.turned_from is None else new.turned_from).long(), of_q
        k = turned(k[None], new.cos, new.sin, (begins[of] + place)[None], new.interleaved)[0]
        at = begins[of_token] + in_sequence if moves else begins[of_token]
        q = turned(q.reshape(1, -1, *q.shape[-2:]), new.cos, new.sin, at[None], new.interleaved)[0].view(q.shape)
    row, at = of if cache.rows is None else cache.rows[of], lengths.long()[of] + place
    if cache.pages is not None:
        page = cache.k.shape[1]
        if cache.k.is_cpu:  # looks at the pages of keys that are there
            in_range(_WHERE, "page_table", cache.pages if cache.rows is None else cache.pages[cache.rows], grown, cache.k)
        row, at = cache.pages[row, torch.div(at, page, rounding_mode="floor")].long(), at % page
        check_page_numbers(_WHERE, "page_table", row, cache.k.shape[0])
    cache.k[row, at], cache.v[row, at] = k, v
    return q, grown


def _read(cache: _Cache, lengths: torch.Tensor, in_order: bool, scales: Tuple[Tensor, Tensor]) -> Tuple[torch.Tensor, torch.Tensor, Tensor]:
    """(k, v, pages) of the sequences that are asked for, not in 8 bits; in_order: without pages."""
    k, v, pages = cache.k, cache.v, cache.pages
    if pages is not None:
        pages = pages if cache.rows is None else pages[cache.rows]
        if in_order or k.dtype in IN_8_BITS:
            pages = in_range(_WHERE, "page_table", pages, lengths, k)
            k, v, pages = k[pages].flatten(1, 2), v[pages].flatten(1, 2), None
    elif cache.rows is not None:
        k, v = k[cache.rows], v[cache.rows]
    return _of_8_bits(k, scales[0]), _of_8_bits(v, scales[1]), pages


def _is_plain(q: Any, k_cache: Any, v_cache: Any, chunk: Any, more: Tuple[Any, ...]) -> bool:
    """Whether a call over a cache is one that flash-attn has, too, but for a sink."""
    if any(t is not None for t in more) or type(chunk) is not int or chunk != 0:
        return False
    return all(isinstance(t, torch.Tensor) and t.dtype not in IN_8_BITS for t in (q, k_cache, v_cache)) and v_cache.shape[-1:] <= (256,)


def _with_lse(made: WithLse, asked: bool) -> Any:
    if not asked:
        return made[0]
    o, lse = made
    return o, lse, o.new_empty((0,), dtype=torch.float32), o.new_empty((0,), dtype=torch.float32)


@without_gradients
def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: Tensor = None, v: Tensor = None, qv: Tensor = None, rotary_cos: Tensor = None,
    rotary_sin: Tensor = None, cache_seqlens: Union[None, int, torch.Tensor] = None, cache_batch_idx: Tensor = None, cache_leftpad: Tensor = None,
    page_table: Tensor = None, cu_seqlens_q: Tensor = None, cu_seqlens_k_new: Tensor = None, max_seqlen_q: Optional[int] = None,
    rotary_seqlens: Tensor = None, q_descale: Tensor = None, k_descale: Tensor = None, v_descale: Tensor = None, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Tuple[int, int] = (-1, -1), attention_chunk: int = 0, softcap: float = 0.0, rotary_interleaved: bool = True,
    scheduler_metadata: Tensor = None, num_splits: int = 0, pack_gqa: Optional[bool] = None, sm_margin: int = 0, return_softmax_lse: bool = False,
    s_aux: Tensor = None,
) -> Any:  # fmt: skip
    """q: [batch, new, heads, head_dim], or with cu_seqlens_q and max_seqlen_q [tokens, heads, head_dim]; caches: [batch, room, kv_heads, head_dim], or with
    page_table [pages, page, kv_heads, head_dim]. k and v, packed with cu_seqlens_k_new, are written behind cache_seqlens first. return_softmax_lse: (o, lse,
    and two empty tensors, which are of splits). Left padding, chunks, packed queries and caches in 8 bits copy
    pages into order first, and so does qv. Without gradients, as FlashAttention's."""
    if _is_plain(q, k_cache, v_cache, attention_chunk, (qv, cache_batch_idx, cache_leftpad, cu_seqlens_q, cu_seqlens_k_new, rotary_seqlens)):
        is_causal, window = mask_of(causal, window_size)
        return_softmax_lse = flag("return_softmax_lse", return_softmax_lse)
        asked = Asked(_WHERE, "page_table", q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, None, None, page_table, None, s_aux)
        return _with_lse(over_cache(asked, (is_causal, softmax_scale, window, cap_of(softcap)), rotary_interleaved), return_softmax_lse)
    if qv is not None:
        check_qv(_WHERE, q, k_cache, v_cache, qv, s_aux, ("k_cache", "v_cache"))
    chunk, packed = _chunk("flash_attn_with_kvcache", attention_chunk), cu_seqlens_q is not None
    is_causal, window = mask_of(causal, window_size)
    return_softmax_lse = flag("return_softmax_lse", return_softmax_lse)
    batch = _batch(q, k_cache, v_cache, cu_seqlens_q, max_seqlen_q)
    cache = _cache(q, k_cache, v_cache, page_table, cache_batch_idx, cache_leftpad, batch)
    new = _New(k, v, cu_seqlens_k_new, rotary_cos, rotary_sin, rotary_seqlens, flag("rotary_interleaved", rotary_interleaved))
    lengths = _lengths(wide(cache_seqlens), new, cache, batch, q.device)
    if k is not None:
        one_row_each = q.new_empty((batch, 1, *q.shape[1:])) if packed else q
        check_over_cache(one_row_each, k_cache, v_cache, cache.rows, page_table, None, s_aux, (is_causal, softmax_scale, window, cap_of(softcap)))
        for t, scales in ((q, q_descale), (k_cache, k_descale), (v_cache, v_descale)):  # before anything is written
            if scales is not None and t.dtype in IN_8_BITS:
                _check_scales(scales, t, batch)
    of_q: Any = _places(q, cu_seqlens_q) if packed or rotary_cos is not None else None  # these alone ask for it
    room = cache.room
    q, lengths = _append(new, q, of_q, is_causal or window is not None or bool(chunk), cache, lengths)
    if cu_seqlens_q is not None:
        q, qv = (t if t is None else padded(t, cu_seqlens_q, max_seqlen_q) for t in (q, qv))
    q, listed = _of_8_bits(q, q_descale), packed or qv is not None or cache_leftpad is not None or bool(chunk)
    k_cache, v_cache, pages = _read(cache, lengths, listed, (k_descale, v_descale))
    options: Any = {"is_causal": is_causal, "scale": softmax_scale, "window": window, "layout": "blhd", "softcap": cap_of(softcap)}
    options["sink"] = s_aux
    if not listed:
        o, lse = _by_parts(lambda v: attention_with_cache(q, k_cache, v, lengths, pages, return_lse=True, **options), v_cache)
    else:
        none = torch.zeros_like(lengths)
        rows = none + q.shape[1] if cu_seqlens_q is None else cu_seqlens_q.diff()
        skipped = None if cache_leftpad is None else torch.minimum(wide(cache_leftpad), lengths)  # where all is padding, no key is seen
        parts = _lists((none, none), (rows, lengths), (none + q.shape[1], none + room), chunk, room, skipped)
        cu_q, cu_k = _closed(parts, q.shape[1])
        if qv is not None:
            o, lse = attention_with_qv(q, qv, k_cache, v_cache, cu_q, cu_k, _sides(is_causal, window), softmax_scale, cap_of(softcap), "attention_with_cache")
        else:
            options.update(align="bottom-right", cu_seqlens_q=cu_q, cu_seqlens_k=cu_k)
            o, lse = _by_parts(lambda v: attention(q, k_cache, v, return_lse=True, **options), v_cache)
    if packed:
        rows = of_q[0], of_q[1].clamp(max=max(o.shape[1] - 1, 0))  # a list that is wrong would end the work on a card
        o, lse = o[rows], lse.transpose(1, 2)[rows].T
    return _with_lse((o, lse), return_softmax_lse)
