"""The functions of flash-attn by their names and arguments, over our attention, on CPU and CUDA, float32 too.

    from gpu_headroom.torch.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache

What is not served (cache_leftpad of a cache in pages) is refused in a sentence. Dropout draws from torch's generator, and drops others
than flash-attn does; return_attn_probs tells which (dropped.py).
"""

from typing import TYPE_CHECKING, Any, Optional, Tuple, Union, overload

import torch

from .direct import draw_of, without_gradients
from .flash_caches import Asked, over_cache
from .flash_checks import cap_of, check_list, check_packed, check_pages, check_room, check_tensor, flag, in_range, mask_of
from .functions import attention, attention_varlen, packed_slopes

if TYPE_CHECKING:
    from typing import Literal

Probs = Tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def _seed(q: torch.Tensor, dropout_p: float) -> Optional[torch.Tensor]:
    """The seed of a call whose dropout is told; None: attention() refuses what is no chance."""
    return draw_of(q.device)() if isinstance(q, torch.Tensor) and isinstance(dropout_p, (int, float)) and 0 < dropout_p < 1 else None


def _dropped(
    q: torch.Tensor, k: torch.Tensor, o: torch.Tensor, dropout_p: float, seed: torch.Tensor, scale: Optional[float], softcap: float,
    slopes: Optional[torch.Tensor], mask: Tuple[bool, Tuple[int, int]], *packed: Any,
) -> torch.Tensor:  # fmt: skip
    from .dropped import with_signs_of_dropout

    causal, (before, after) = mask
    sides = int(before), 0 if causal else int(after)
    made: torch.Tensor = with_signs_of_dropout(q, k, o.dtype, dropout_p, seed, scale, softcap, slopes, sides, *packed)
    return made


@overload
def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: "Literal[False]" = False,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: "Literal[True]",
) -> Probs: ...  # fmt: skip


@overload
def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: bool,
) -> Union[torch.Tensor, Probs]: ...  # fmt: skip


def flash_attn_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Union[torch.Tensor, Probs]:  # fmt: skip
    """q: [batch, len_q, heads, head_dim]; k and v: [batch, len_k, kv_heads, head_dim]. return_attn_probs: (o, lse, S): S is empty without dropout,
    else [batch, heads, len_q, len_k], without flash-attn's padding, negative where a probability was dropped."""
    is_causal, window = mask_of(causal, window_size)
    if return_attn_probs is not False and return_attn_probs is not True:  # a call less
        return_attn_probs = flag("return_attn_probs", return_attn_probs)
    seed = _seed(q, dropout_p) if return_attn_probs and dropout_p else None
    if deterministic is not False and deterministic is not True:
        deterministic = flag("deterministic", deterministic)
    out = attention(q, k, v, dropout_p=dropout_p, is_causal=is_causal, scale=softmax_scale, window=window, align="bottom-right", layout="blhd",
                    return_lse=return_attn_probs, softcap=0.0 if type(softcap) is float and softcap <= 0 else cap_of(softcap), deterministic=deterministic,
                    alibi_slopes=alibi_slopes, seed=seed)  # fmt: skip
    if not return_attn_probs:
        return out
    if seed is None:
        return (*out, out[0].new_empty((0,)))
    return (*out, _dropped(q, k, out[0], dropout_p, seed, softmax_scale, softcap, alibi_slopes, (causal, window_size)))


@overload
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: "Literal[False]" = False,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: "Literal[True]",
) -> Probs: ...  # fmt: skip


@overload
def flash_attn_qkvpacked_func(
    qkv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: bool,
) -> Union[torch.Tensor, Probs]: ...  # fmt: skip


def flash_attn_qkvpacked_func(
    qkv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Union[torch.Tensor, Probs]:  # fmt: skip
    """qkv: [batch, len, 3, heads, head_dim]."""
    check_packed("flash_attn.flash_attn_qkvpacked_func", "qkv", qkv, "[batch, len, 3, heads, head_dim]", 2, 3)
    q, k, v = qkv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs=return_attn_probs)


@overload
def flash_attn_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: "Literal[False]" = False,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: "Literal[True]",
) -> Probs: ...  # fmt: skip


@overload
def flash_attn_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: bool,
) -> Union[torch.Tensor, Probs]: ...  # fmt: skip


def flash_attn_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Union[torch.Tensor, Probs]:  # fmt: skip
    """kv: [batch, len_k, 2, kv_heads, head_dim]."""
    check_packed("flash_attn.flash_attn_kvpacked_func", "kv", kv, "[batch, len_k, 2, kv_heads, head_dim]", 2, 2)
    k, v = kv.unbind(2)
    return flash_attn_func(q, k, v, dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic, return_attn_probs=return_attn_probs)


def _from_pages(
    where: str, k: torch.Tensor, v: torch.Tensor, cu_q: torch.Tensor, cu_k: torch.Tensor, block_table: torch.Tensor
) -> Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """k and v with each sequence's pages behind one another, and lists in which a document without queries has the rest of the last page."""
    for name, t in (("k", k), ("v", v)):
        check_tensor(where, name, t, (4,), "[pages, page, kv_heads, head_dim] with block_table")
    for name, cu in (("cu_seqlens_q", cu_q), ("cu_seqlens_k", cu_k)):
        check_list(where, name, cu, k)
    check_pages(where, "block_table", block_table, cu_k.shape[0] - 1, k)
    if cu_q.shape != cu_k.shape or k.shape[:3] != v.shape[:3]:
        raise ValueError(f"gpu_headroom.torch.{where}: cu_seqlens_q is {tuple(cu_q.shape)}, cu_seqlens_k {tuple(cu_k.shape)}, k {tuple(k.shape)} and v "
                         f"{tuple(v.shape)}: lists, and pages, are of one size")  # fmt: skip
    lengths, room = cu_k.diff(), block_table.shape[1] * k.shape[1]
    check_room(where, lengths, 0, room, True)
    pages = in_range(where, "block_table", block_table, lengths, k)
    k, v = (t[pages].flatten(0, 2) for t in (k, v))
    begins = torch.arange(pages.shape[0], device=cu_k.device, dtype=torch.int32) * room
    cu_k = torch.cat([torch.stack([begins, begins + lengths], 1).flatten(), cu_k.new_tensor([k.shape[0]])])
    return k, v, torch.cat([torch.stack([cu_q[:-1], cu_q[1:]], 1).flatten(), cu_q[-1:]]), cu_k


@overload
def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: "Literal[False]" = False, block_table: Optional[torch.Tensor] = None,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: "Literal[True]", block_table: Optional[torch.Tensor] = None,
) -> Probs: ...  # fmt: skip


@overload
def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: bool, block_table: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, Probs]: ...  # fmt: skip


def flash_attn_varlen_func(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: bool = False, block_table: Optional[torch.Tensor] = None,
) -> Union[torch.Tensor, Probs]:  # fmt: skip
    """q: [tokens, heads, head_dim]; k and v: [tokens_k, kv_heads, head_dim]. return_attn_probs: (o, lse [heads, tokens], S), where S is empty, or
    with dropout [sequences, heads, max_seqlen_q, max_seqlen_k], negative where a probability was dropped.

    block_table: int32 [sequences, most]: k and v are [pages, page, kv_heads, head_dim], and are copied into order first; S is empty.
    """
    is_causal, window = mask_of(causal, window_size)
    return_attn_probs = flag("return_attn_probs", return_attn_probs)
    of_sequences = alibi_slopes
    if block_table is not None:
        alibi_slopes = packed_slopes(alibi_slopes, q, cu_seqlens_q)
        k, v, cu_seqlens_q, cu_seqlens_k = _from_pages("flash_attn.flash_attn_varlen_func", k, v, cu_seqlens_q, cu_seqlens_k, block_table)
        if alibi_slopes is not None and alibi_slopes.dim() == 2:  # and what is left of a sequence's last page is a document of its own
            alibi_slopes = alibi_slopes.repeat_interleave(2, 0)
    seed = _seed(q, dropout_p) if return_attn_probs and dropout_p else None
    out = attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, is_causal=is_causal, scale=softmax_scale,
                           window=window, return_lse=return_attn_probs, softcap=cap_of(softcap), deterministic=flag("deterministic", deterministic),
                           dropout_p=dropout_p, alibi_slopes=alibi_slopes, seed=seed)  # fmt: skip
    if not return_attn_probs:
        return out
    if seed is None or block_table is not None:
        return (*out, out[0].new_empty((0,)))
    packed = cu_seqlens_q, cu_seqlens_k, int(max_seqlen_q), int(max_seqlen_k)
    return (*out, _dropped(q, k, out[0], dropout_p, seed, softmax_scale, softcap, of_sequences, (causal, window_size), *packed))


@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: "Literal[False]" = False,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: "Literal[True]",
) -> Probs: ...  # fmt: skip


@overload
def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: bool,
) -> Union[torch.Tensor, Probs]: ...  # fmt: skip


def flash_attn_varlen_qkvpacked_func(
    qkv: torch.Tensor, cu_seqlens: torch.Tensor, max_seqlen: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Union[torch.Tensor, Probs]:  # fmt: skip
    """qkv: [tokens, 3, heads, head_dim]."""
    check_packed("flash_attn.flash_attn_varlen_qkvpacked_func", "qkv", qkv, "[tokens, 3, heads, head_dim]", 1, 3)
    q, k, v = qkv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p, softmax_scale, causal, window_size,
                                  softcap, alibi_slopes, deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


@overload
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: "Literal[False]" = False,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: "Literal[True]",
) -> Probs: ...  # fmt: skip


@overload
def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    *, return_attn_probs: bool,
) -> Union[torch.Tensor, Probs]: ...  # fmt: skip


def flash_attn_varlen_kvpacked_func(
    q: torch.Tensor, kv: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int,
    max_seqlen_k: int, dropout_p: float = 0.0, softmax_scale: Optional[float] = None, causal: bool = False,
    window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, alibi_slopes: Optional[torch.Tensor] = None, deterministic: bool = False,
    return_attn_probs: bool = False,
) -> Union[torch.Tensor, Probs]:  # fmt: skip
    """kv: [tokens_k, 2, kv_heads, head_dim]."""
    check_packed("flash_attn.flash_attn_varlen_kvpacked_func", "kv", kv, "[tokens_k, 2, kv_heads, head_dim]", 1, 2)
    k, v = kv.unbind(1)
    return flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p, softmax_scale, causal, window_size,
                                  softcap, alibi_slopes, deterministic, return_attn_probs=return_attn_probs)  # fmt: skip


@overload
def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: Optional[torch.Tensor] = None, v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None, rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: Union[None, int, torch.Tensor] = None, cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None, block_table: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None, num_splits: int = 0,
    return_softmax_lse: "Literal[False]" = False,
) -> torch.Tensor: ...  # fmt: skip


@overload
def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: Optional[torch.Tensor] = None, v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None, rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: Union[None, int, torch.Tensor] = None, cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None, block_table: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None, num_splits: int = 0,
    *, return_softmax_lse: "Literal[True]",
) -> Tuple[torch.Tensor, torch.Tensor]: ...  # fmt: skip


@overload
def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: Optional[torch.Tensor] = None, v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None, rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: Union[None, int, torch.Tensor] = None, cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None, block_table: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None, num_splits: int = 0,
    *, return_softmax_lse: bool,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]: ...  # fmt: skip


@without_gradients
def flash_attn_with_kvcache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, k: Optional[torch.Tensor] = None, v: Optional[torch.Tensor] = None,
    rotary_cos: Optional[torch.Tensor] = None, rotary_sin: Optional[torch.Tensor] = None,
    cache_seqlens: Union[None, int, torch.Tensor] = None, cache_batch_idx: Optional[torch.Tensor] = None,
    cache_leftpad: Optional[torch.Tensor] = None, block_table: Optional[torch.Tensor] = None, softmax_scale: Optional[float] = None,
    causal: bool = False, window_size: Tuple[int, int] = (-1, -1), softcap: float = 0.0, rotary_interleaved: bool = True,
    alibi_slopes: Optional[torch.Tensor] = None, num_splits: int = 0, return_softmax_lse: bool = False,
) -> Union[torch.Tensor, Tuple[torch.Tensor, torch.Tensor]]:  # fmt: skip
    """q: [batch, new, heads, head_dim]; caches: [batch, room, kv_heads, head_dim], or in pages. k and v are written behind cache_seqlens first.

    rotary_cos, rotary_sin: [positions, half of the dimensions that turn]: k turns by its positions in the cache, q with it (causal or a window:
    by positions of its own; else all by the first). cache_leftpad: where each sequence begins in the cache; one that begins
    behind its end has no keys, and rows of 0. num_splits changes nothing here.
    Without gradients, as flash-attn's: what autograd keeps would grow with every new position.
    """
    is_causal, window = mask_of(causal, window_size)
    return_softmax_lse = flag("return_softmax_lse", return_softmax_lse)
    out = over_cache(
        Asked("flash_attn.flash_attn_with_kvcache", "block_table", q, k_cache, v_cache, k, v, rotary_cos, rotary_sin, cache_seqlens, cache_batch_idx,
              cache_leftpad, block_table, alibi_slopes, None),
        (is_causal, softmax_scale, window, cap_of(softcap)), rotary_interleaved,
    )  # fmt: skip
    return out if return_softmax_lse else out[0]
