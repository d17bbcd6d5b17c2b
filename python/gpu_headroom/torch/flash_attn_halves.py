"""Forward and backward of flash-attn apart, by the names that its module flash_attn.flash_attn_interface has: ring attention and other autograd functions of
your own call them. None of them has gradients.

    from gpu_headroom.torch.flash_attn_halves import _flash_attn_forward, _flash_attn_backward
"""

from typing import Any, Optional, Tuple

import torch

from .backward import write_gradients
from .flash_attn import _dropped, _from_pages, _seed
from .flash_checks import cap_of, check_whole, flag, mask_of
from .functions import attention, attention_varlen, packed_slopes

Tensor = Optional[torch.Tensor]
Made = Tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]
_AT_ONCE = 1 << 22  # numbers


def _made(out: Any, seed: Tensor, probabilities: Tensor) -> Made:
    o, lse = out
    numbers = torch.zeros(2, dtype=torch.int64, device=o.device) if seed is None else seed
    return o, lse, o.new_empty((0,)) if probabilities is None else probabilities, numbers


@torch.no_grad()
def _flash_attn_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, dropout_p: float, softmax_scale: Optional[float], causal: bool, window_size_left: int = -1,
    window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Tensor = None, return_softmax: bool = False,
) -> Made:  # fmt: skip
    """(o, lse [batch, heads, len_q], S as flash_attn_func has it where return_softmax says so, the state that backward draws dropout from)."""
    sides = window_size_left, window_size_right
    (is_causal, window), seed = mask_of(causal, sides), _seed(q, dropout_p)
    out = attention(q, k, v, dropout_p=dropout_p, is_causal=is_causal, scale=softmax_scale, window=window, align="bottom-right",
                    layout="blhd", return_lse=True, softcap=cap_of(softcap), alibi_slopes=alibi_slopes, seed=seed)  # fmt: skip
    if seed is None or not return_softmax:
        return _made(out, seed, None)
    return _made(out, seed, _dropped(q, k, out[0], dropout_p, seed, softmax_scale, softcap, alibi_slopes, (causal, sides)))


@torch.no_grad()
def _flash_attn_varlen_forward(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int,
    dropout_p: float, softmax_scale: Optional[float], causal: bool, window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Tensor = None, return_softmax: bool = False, block_table: Tensor = None, leftpad_k: Tensor = None, seqused_k: Tensor = None,
    zero_tensors: bool = False, num_splits: int = 0,
) -> Made:  # fmt: skip
    """The same of packed sequences, lse [heads, tokens]. seqused_k: how many keys of each sequence there are, with pages; S is empty."""
    where = "flash_attn_halves._flash_attn_varlen_forward"
    if num_splits > 1:
        raise RuntimeError(f"gpu_headroom.torch.{where}: num_splits > 1 is not supported: leave it out")
    if leftpad_k is not None or (seqused_k is not None and block_table is None) or (block_table is not None and dropout_p):
        raise NotImplementedError(f"gpu_headroom.torch.{where}: leftpad_k, seqused_k without pages, and dropout over pages are not served")
    (is_causal, window), seed = mask_of(causal, (window_size_left, window_size_right)), _seed(q, dropout_p)
    if block_table is not None:
        alibi_slopes = packed_slopes(alibi_slopes, q, cu_seqlens_q)
        if seqused_k is not None:
            check_whole(where, "seqused_k", seqused_k, tuple(block_table.shape[:1]), q)
            cu_seqlens_k = torch.nn.functional.pad(seqused_k.cumsum(0), (1, 0)).int()
        k, v, cu_seqlens_q, cu_seqlens_k = _from_pages(where, k, v, cu_seqlens_q, cu_seqlens_k, block_table)
        if alibi_slopes is not None and alibi_slopes.dim() == 2:  # and what is left of a sequence's last page is a document of its own
            alibi_slopes = alibi_slopes.repeat_interleave(2, 0)
    out = attention_varlen(q, k, v, cu_seqlens_q, cu_seqlens_k, is_causal=is_causal, scale=softmax_scale, window=window,
                           return_lse=True, softcap=cap_of(softcap), dropout_p=dropout_p, alibi_slopes=alibi_slopes, seed=seed)  # fmt: skip
    return _made(out, seed, None)


def _of_rows(d_o: torch.Tensor, o: torch.Tensor) -> torch.Tensor:
    """What flash-attn calls softmax_d, [batch, heads, len_q]. Most callers drop it, so no float32 copies of whole tensors are made."""
    if torch.compiler.is_compiling():  # makes none by itself
        return (d_o.float() * o.float()).sum(-1).transpose(1, 2)
    batch, len_q, heads, dim = o.shape
    made = o.new_empty((batch, heads, len_q), dtype=torch.float32)
    step = max(1, _AT_ONCE // max(1, batch * heads * dim))
    for first in range(0, len_q, step):
        at = slice(first, first + step)
        made[:, :, at] = (d_o[:, at].float() * o[:, at].float()).sum(-1).transpose(1, 2)
    return made


def _backward(
    d_o: torch.Tensor, tensors: Tuple[torch.Tensor, ...], given: Tuple[Tensor, ...], dropout_p: float, scale: Optional[float], causal: bool,
    sides: Tuple[int, int], softcap: float, slopes: Tensor, deterministic: bool, rng_state: Tensor, **lists: torch.Tensor,
) -> torch.Tensor:  # fmt: skip
    """Writes the gradients into those that are given; _of_rows."""
    is_causal, window = mask_of(causal, sides)
    write_gradients(given, d_o, *tensors, is_causal=is_causal, scale=scale, window=window, layout="blhd", softcap=cap_of(softcap),
                    deterministic=flag("deterministic", deterministic), dropout_p=dropout_p, seed=rng_state if dropout_p else None, alibi_slopes=slopes, **lists)  # fmt: skip
    return _of_rows(d_o, tensors[3])


@torch.no_grad()
def _flash_attn_backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, softmax_lse: torch.Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    dropout_p: float, softmax_scale: Optional[float], causal: bool, window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0,
    alibi_slopes: Tensor = None, deterministic: bool = False, rng_state: Tensor = None,
) -> torch.Tensor:  # fmt: skip
    """dq, dk and dv are written, those that are not None. rng_state: the fourth of forward's results, where there was dropout."""
    return _backward(dout, (q, k, v, out, softmax_lse), (dq, dk, dv), dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap,
                     alibi_slopes, deterministic, rng_state)  # fmt: skip


@torch.no_grad()
def _flash_attn_varlen_backward(
    dout: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor, softmax_lse: torch.Tensor, dq: Tensor, dk: Tensor, dv: Tensor,
    cu_seqlens_q: torch.Tensor, cu_seqlens_k: torch.Tensor, max_seqlen_q: int, max_seqlen_k: int, dropout_p: float, softmax_scale: Optional[float],
    causal: bool, window_size_left: int = -1, window_size_right: int = -1, softcap: float = 0.0, alibi_slopes: Tensor = None, deterministic: bool = False,
    rng_state: Tensor = None, zero_tensors: bool = False,
) -> torch.Tensor:  # fmt: skip
    """The same of packed sequences."""
    slopes = packed_slopes(alibi_slopes, q, cu_seqlens_q)
    tensors = q[None], k[None], v[None], out[None], softmax_lse[None]
    into = tuple(None if t is None else t[None] for t in (dq, dk, dv))
    return _backward(dout[None], tensors, into, dropout_p, softmax_scale, causal, (window_size_left, window_size_right), softcap,
                     slopes[None] if slopes is not None and slopes.dim() == 2 else slopes, deterministic, rng_state,
                     cu_seqlens_q=cu_seqlens_q[None], cu_seqlens_k=cu_seqlens_k[None])[0]  # fmt: skip
