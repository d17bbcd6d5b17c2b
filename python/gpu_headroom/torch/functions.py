"""The functions of gpu_headroom.torch: they check, and run the operator or the direct call."""

from typing import TYPE_CHECKING, Any, NoReturn, Optional, Tuple, Union, overload

import torch
import torch.autograd.forward_ad as _forward_ad
import torch.overrides

from .. import attention as arrays_attention
from . import caches, kept_calls, masks, quick
from .calls import KINDS, call_of, context_of
from .checks import (
    cast, checked, checked_slopes, kind_of, listed, one_line, options_of, reason_why_not, refuse, slopes_of, whole_number, window_of,
)  # fmt: skip
from .direct import any_autocast, directly, known, run
from .sdpa import seen_so_far

Window = Union[None, int, Tuple[int, int]]
Longest = Union[None, int, torch.Tensor]
WithLse = Tuple[torch.Tensor, torch.Tensor]

if TYPE_CHECKING:
    from typing import Literal, TypedDict

    from typing_extensions import Unpack

    class _Options(TypedDict, total=False):
        window: Window
        variant: Optional[str]
        tf32: Optional[bool]
        softcap: float
        sink: Optional[torch.Tensor]
        alibi_slopes: Optional[torch.Tensor]

    class _CacheOptions(_Options, total=False):
        is_causal: bool
        scale: Optional[float]
        layout: str

    class _VarlenOptions(_Options, total=False):
        is_causal: bool
        scale: Optional[float]
        align: str
        deterministic: bool
        dropout_p: float
        seed: Optional[torch.Tensor]

    class _AttentionOptions(_Options, total=False):
        align: str
        layout: str
        deterministic: bool
        cu_seqlens_q: Optional[torch.Tensor]
        cu_seqlens_k: Optional[torch.Tensor]
        seed: Optional[torch.Tensor]
        quantise: Optional[str]


def why_not(
    q: Any, k: Any, v: Any, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False, scale: Optional[float] = None,
    enable_gqa: bool = True, *, layout: str = "bhld",
    **misspelt: NoReturn,
) -> Optional[str]:  # fmt: skip
    """None when headroom serves this call of scaled_dot_product_attention, else the reason why not, in one sentence."""
    if misspelt:
        refuse(why_not, misspelt)
    return _served(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa, layout)[0]


def _served(q: Any, k: Any, v: Any, attn_mask: Any, dropout_p: float, is_causal: bool, scale: Optional[float], enable_gqa: bool, layout: str) -> Any:
    """(reason, what a mask tensor says, or None): as replace_sdpa sees the call."""
    readable = isinstance(attn_mask, torch.Tensor) and not is_causal and layout == "bhld"
    reason = reason_why_not(q, k, v, None if readable else attn_mask, dropout_p, scale, enable_gqa, layout)
    if reason is not None or not readable:
        return reason, None
    said = masks.read(attn_mask, q, k)
    return (None, said) if isinstance(said, masks.Seen) else (said, None)


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Optional[float] = None, enable_gqa: bool = True, *, return_lse: "Literal[False]" = False, **options: "Unpack[_AttentionOptions]",
) -> torch.Tensor: ...  # fmt: skip


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Optional[float] = None, enable_gqa: bool = True, *, return_lse: "Literal[True]", **options: "Unpack[_AttentionOptions]",
) -> WithLse: ...  # fmt: skip


@overload
def attention(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, attn_mask: None = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Optional[float] = None, enable_gqa: bool = True, *, return_lse: bool, **options: "Unpack[_AttentionOptions]",
) -> Union[torch.Tensor, WithLse]: ...  # fmt: skip


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    attn_mask: None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: Optional[float] = None,
    enable_gqa: bool = True,
    *,
    window: Window = None,
    align: str = "top-left",
    layout: str = "bhld",
    return_lse: bool = False,
    variant: Optional[str] = None,
    deterministic: bool = False,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    seed: Optional[torch.Tensor] = None,
    quantise: Optional[str] = None,
    alibi_slopes: Optional[torch.Tensor] = None,
    mask: None = None,
    **misspelt: NoReturn,
) -> Union[torch.Tensor, WithLse]:
    """softmax(scale * q k^T + mask) v, exactly; the arguments of torch's scaled_dot_product_attention, and more.

    q: [batch, heads, len_q, head_dim]; k and v: [batch, kv_heads, len_k, head_dim], where kv_heads divides heads; with
    layout="blhd" [batch, len, heads, head_dim]. float32, bfloat16 or float16, CPU or CUDA, any strides. head_dim up to 256.
    v may have a head_dim of its own, which is then o's. The result has q's dtype.
    window: a row sees its own position and the window - 1 before it; (window, n): and the n after it. softcap: scores become
    softcap * tanh(score / softcap), as in Gemma 2. align: where the diagonal of is_causal and window begins
    when len_q and len_k differ: "top-left" as torch's is_causal, "bottom-right" as flash-attn's. scale: None is 1/sqrt(head_dim).
    sink: [heads], a logit that joins each head's softmax and has no value, as in gpt-oss; differentiable.
    cu_seqlens_q: int32 [batch, documents + 1]: sequences packed one behind another into each row of the batch. Document d has the
    positions cu_seqlens_q[b, d] up to cu_seqlens_q[b, d + 1]; the mask holds inside it; no row sees another document's. cu_seqlens_k: the
    same of the keys; None: that of the queries. On the CPU wrong lists are refused; on CUDA they are not checked, and the result is undefined.
    return_lse: also the logarithm of the softmax's sum, float32 [batch, heads, len_q], differentiable too.
    dropout_p: the chance of a probability to be dropped, below 1, in steps of 1/32768. seed: int64 [2] beside q, which ones (seed and offset of
    Philox); None: two numbers of torch's generator of the device, drawn at each call. Which are dropped differs from torch's own choice.
    alibi_slopes: [heads], [batch, heads] or, with cu_seqlens_q, [batch, documents, heads]: ALiBi's. A score falls by slope * |row - key|, counted
    in each document. Where len_q and len_k differ, row i is at key i under a mask with align="top-left"; else the last row is at the last key.
    The slopes have no gradient. On the CPU one that is not finite is refused; on CUDA it gives NaN.
    tf32: of float32 on CUDA; None: as torch.backends.cuda.matmul.allow_tf32 says. attn_mask and mask are refused.
    deterministic: the same bits of every gradient in every run; also where torch.use_deterministic_algorithms(True) was said.
    quantise: "fp8" rounds q, k and v, which are bfloat16, to 8 bits with a scale for each head, and multiplies those. Without gradients.
    """
    if misspelt:
        refuse(attention, misspelt)
    if mask is not None:
        raise TypeError("gpu_headroom.torch.attention: there is no mask here: say is_causal=True or window=..., or leave it out")
    asked = (
        attn_mask, dropout_p, is_causal, scale, enable_gqa, window, align, layout, variant, deterministic, tf32, softcap, sink, cu_seqlens_q,
        cu_seqlens_k, seed, quantise, alibi_slopes,
    )  # fmt: skip
    if not torch.compiler.is_compiling() and quick.attend is not None and _forward_ad._current_level < 0:
        out = quick.attend(q, k, v, return_lse, asked)
        if out is not None:
            return out
    return _attend(q, k, v, return_lse, asked)


def _attend(q, k, v, return_lse, asked):
    """A call of attention() that C++ does not know: it is known here, or it is checked."""
    deterministic, window = asked[9], asked[5]
    if type(return_lse) is not bool or type(deterministic) is not bool:
        _refuse_flags(return_lse, deterministic)
    deterministic = deterministic or torch.are_deterministic_algorithms_enabled()
    if window is not None and type(window) is not int and not asked[2]:  # plain numbers: a tensor in the key could be changed
        window = window_of(window)
    key = found = None
    if directly(q, k, v) and not any_autocast():
        try:
            key = kept_calls.key_of(q, k, v, asked, window, deterministic)
            found = None if key is None else known.get(key)
        except (TypeError, RuntimeError):  # something in it is a list, say, or a tensor has no strides: looked at below
            key = None
    if found is not None:
        return kept_calls.again(found, q, k, v, return_lse, asked)
    if key is None and all(isinstance(t, torch.Tensor) for t in (q, k, v)):
        q, k, v = cast([q, k, v])
    elif key is None and torch.overrides.has_torch_function((q, k, v)):
        return _recorded(attention, q, k, v, return_lse=return_lse, **dict(zip(_ASKED, asked)))
    tensors, options = kept_calls.checked_call(q, k, v, asked, window, deterministic)
    if key is not None and q.device.type in KINDS:
        kept_calls.keep_call(key, q, k, v, tensors, options, asked)
    return run(tensors, options, return_lse)


def _refuse_flags(return_lse, deterministic):
    for name, value in (("return_lse", return_lse), ("deterministic", deterministic)):
        if not isinstance(value, bool):
            raise TypeError(f"gpu_headroom.torch.attention: {name} is a {kind_of(value)}: True or False")


_ASKED = (
    "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa", "window", "align", "layout", "variant", "deterministic", "tf32", "softcap", "sink",
    "cu_seqlens_q", "cu_seqlens_k", "seed", "quantise", "alibi_slopes",
)  # fmt: skip


def _recorded(function, q, k, v, *more, **named):
    """What stands for tensors answers by itself: torch.fx's proxies note the call."""
    return torch.overrides.handle_torch_function(function, (q, k, v), q, k, v, *more, **named)


def packed_slopes(slopes, q, cu_seqlens_q, of="attention_varlen"):
    """Checked where q [tokens, heads, head_dim] and the list of documents are tensors; attention() refuses what is not."""
    if slopes is None or not isinstance(q, torch.Tensor) or q.dim() != 3 or not isinstance(cu_seqlens_q, torch.Tensor) or cu_seqlens_q.dim() == 0:
        return slopes
    return checked_slopes(slopes, q, [(q.shape[1],), (cu_seqlens_q.shape[-1] - 1, q.shape[1])], of)


@overload
def attention_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: Optional[torch.Tensor] = None,
    max_seqlen_q: Longest = None, max_seqlen_k: Longest = None, *, return_lse: "Literal[False]" = False,
    **options: "Unpack[_VarlenOptions]",
) -> torch.Tensor: ...  # fmt: skip


@overload
def attention_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: Optional[torch.Tensor] = None,
    max_seqlen_q: Longest = None, max_seqlen_k: Longest = None, *, return_lse: "Literal[True]", **options: "Unpack[_VarlenOptions]",
) -> WithLse: ...  # fmt: skip


@overload
def attention_varlen(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, cu_seqlens_q: torch.Tensor, cu_seqlens_k: Optional[torch.Tensor] = None,
    max_seqlen_q: Longest = None, max_seqlen_k: Longest = None, *, return_lse: bool, **options: "Unpack[_VarlenOptions]",
) -> Union[torch.Tensor, WithLse]: ...  # fmt: skip


def attention_varlen(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    max_seqlen_q: Longest = None,
    max_seqlen_k: Longest = None,
    *more: NoReturn,
    is_causal: bool = False,
    scale: Optional[float] = None,
    window: Window = None,
    align: str = "bottom-right",
    return_lse: bool = False,
    variant: Optional[str] = None,
    deterministic: bool = False,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    seed: Optional[torch.Tensor] = None,
    alibi_slopes: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> Union[torch.Tensor, WithLse]:
    """Attention of documents packed one behind another, each seeing only itself; the arguments of flash-attn's flash_attn_varlen_func.

    q: [tokens, heads, head_dim]; k and v: [tokens_k, kv_heads, head_dim]. cu_seqlens_q: int32 [documents + 1], from 0 on: document d has the
    tokens cu_seqlens_q[d] up to cu_seqlens_q[d + 1]. cu_seqlens_k: the same of k and v; None: that of q. The rest as in attention(); the
    logarithm of the softmax's sum is [heads, tokens]. alibi_slopes: [heads] or [documents, heads]. max_seqlen_q and max_seqlen_k are taken from
    callers of flash-attn; nothing needs them.
    """
    if misspelt:
        refuse(attention_varlen, misspelt)
    if more:
        raise TypeError(
            "gpu_headroom.torch.attention_varlen: after max_seqlen_k every argument is said by its name: flash-attn's softmax_scale is scale=, its "
            "causal is is_causal=, its dropout_p is dropout_p="
        )
    for name, longest in (("max_seqlen_q", max_seqlen_q), ("max_seqlen_k", max_seqlen_k)):
        if longest is not None and not isinstance(longest, torch.Tensor) and whole_number(longest) is None:
            raise TypeError(f"gpu_headroom.torch.attention_varlen: {name} is a {type(longest).__name__}: a whole number, or leave it out")
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, torch.Tensor) and torch.overrides.has_torch_function((t,)):
            return _recorded(
                attention_varlen, q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, is_causal=is_causal, scale=scale, window=window,
                align=align, return_lse=return_lse, variant=variant, deterministic=deterministic, tf32=tf32, softcap=softcap, sink=sink, dropout_p=dropout_p,
                seed=seed, alibi_slopes=alibi_slopes,
            )  # fmt: skip
        if isinstance(t, torch.Tensor) and t.dim() != 3:
            raise ValueError(f"gpu_headroom.torch.attention_varlen: {name} has {t.dim()} dimensions: 3 are served, [tokens, heads, head_dim]")
    batched = [t[None] if isinstance(t, torch.Tensor) else t for t in (q, k, v)]
    if cu_seqlens_q is None:
        raise TypeError("gpu_headroom.torch.attention_varlen: cu_seqlens_q is None: say where documents begin, [0, end] for one")
    slopes = packed_slopes(alibi_slopes, q, cu_seqlens_q)
    out = attention(
        *batched, dropout_p=dropout_p, is_causal=is_causal, scale=scale, window=window, align=align, layout="blhd", return_lse=return_lse,
        variant=variant, deterministic=deterministic, tf32=tf32, softcap=softcap, sink=sink, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
        seed=seed, alibi_slopes=slopes[None] if isinstance(slopes, torch.Tensor) and slopes.dim() == 2 else slopes,
    )  # fmt: skip
    return (out[0][0], out[1][0]) if return_lse else out[0]


def _ends(name, ends, q, most):
    """int32 [batch, 2]: 0 and each of `ends`, on q's device."""
    none = q.new_zeros(q.shape[:1], dtype=torch.int32)
    if isinstance(ends, torch.Tensor) and ends.dim() == 0 and ends.device == q.device and not ends.is_floating_point():
        ends = ends.expand(q.shape[0])  # one number for all
    if isinstance(ends, torch.Tensor):
        if ends.is_floating_point() or ends.dim() != 1 or ends.shape[0] != q.shape[0]:
            raise ValueError(f"gpu_headroom.torch: {name} is {ends.dtype} {tuple(ends.shape)}, it must be whole numbers ({q.shape[0]},)")
        if ends.device != q.device:
            raise ValueError(f"gpu_headroom.torch: {name} is on {ends.device}, q is on {q.device}")
        if ends.device.type == "cpu" and directly(ends, ends, ends):
            for b, n in enumerate(ends.tolist()):
                if not 0 <= n <= most:
                    raise ValueError(f"gpu_headroom.torch: {name}[{b}] is {n}, the cache has room for {most}")
    else:
        number = whole_number(ends)
        if number is None:
            raise TypeError(f"gpu_headroom.torch: {name} is a {type(ends).__name__}: a tensor of {q.shape[0]} whole numbers, or one number")
        if number < 0 or number > most:
            raise ValueError(f"gpu_headroom.torch: {name} is {ends}, the cache has room for {most}")
        ends = none + number
    return torch.stack([none, ends.int()], 1)


@overload
def attention_with_cache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, lengths: Union[None, int, torch.Tensor] = None,
    pages: Optional[torch.Tensor] = None, *, return_lse: "Literal[False]" = False, **options: "Unpack[_CacheOptions]",
) -> torch.Tensor: ...  # fmt: skip


@overload
def attention_with_cache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, lengths: Union[None, int, torch.Tensor] = None,
    pages: Optional[torch.Tensor] = None, *, return_lse: "Literal[True]", **options: "Unpack[_CacheOptions]",
) -> WithLse: ...  # fmt: skip


@overload
def attention_with_cache(
    q: torch.Tensor, k_cache: torch.Tensor, v_cache: torch.Tensor, lengths: Union[None, int, torch.Tensor] = None,
    pages: Optional[torch.Tensor] = None, *, return_lse: bool, **options: "Unpack[_CacheOptions]",
) -> Union[torch.Tensor, WithLse]: ...  # fmt: skip


def attention_with_cache(
    q: torch.Tensor,
    k_cache: torch.Tensor,
    v_cache: torch.Tensor,
    lengths: Union[None, int, torch.Tensor] = None,
    pages: Optional[torch.Tensor] = None,
    *,
    is_causal: bool = True,
    scale: Optional[float] = None,
    window: Window = None,
    layout: str = "bhld",
    return_lse: bool = False,
    variant: Optional[str] = None,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    alibi_slopes: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> Union[torch.Tensor, WithLse]:
    """Attention of a few new positions over a cache of keys and values, which has theirs already: one step of decoding.

    q: [batch, heads, new, head_dim], the newest positions of each sequence. k_cache, v_cache: [batch, kv_heads, room, head_dim]; or, with
    `pages`, [pages, kv_heads, page, head_dim]; with layout="blhd" [batch, new, heads, head_dim] and [pages, page, kv_heads, head_dim].
    lengths: whole numbers [batch], or one for all: how many keys each sequence has; None: all. What lies behind them is not read.
    pages: int32 [batch, most]: pages[b, n] is the page with the keys n * page and on of sequence b. A cache in pages has no gradients.
    The last new position is at the last key; is_causal and window count from there. The rest as in attention().
    """
    if misspelt:
        refuse(attention_with_cache, misspelt)
    asked = (is_causal, scale, window, layout, variant, tf32, softcap)
    key = None
    if not torch.compiler.is_compiling() and _forward_ad._current_level < 0 and type(return_lse) is bool:
        if lengths is None and pages is None and sink is None and alibi_slopes is None and quick.attend is not None:
            out = quick.attend(q, k_cache, v_cache, return_lse, asked)
            if out is not None:
                return out
        key = caches.key_of(q, k_cache, v_cache, lengths, pages, sink, alibi_slopes, asked)
        out = None if key is None else caches.again(key, q, k_cache, v_cache, lengths, pages, sink, alibi_slopes, layout, slopes_over_cache, return_lse)
        if out is not None:
            return out
    if all(isinstance(t, torch.Tensor) for t in (q, k_cache, v_cache)):
        q, k_cache, v_cache = cast([q, k_cache, v_cache])
    elif torch.overrides.has_torch_function((q, k_cache, v_cache)):
        return _recorded(
            attention_with_cache, q, k_cache, v_cache, lengths, pages, is_causal=is_causal, scale=scale, window=window, layout=layout, return_lse=return_lse,
            variant=variant, tf32=tf32, softcap=softcap, sink=sink, alibi_slopes=alibi_slopes,
        )  # fmt: skip
    if not isinstance(return_lse, bool):
        raise TypeError(f"gpu_headroom.torch.attention_with_cache: return_lse is {one_line(return_lse)}: True or False")
    (q, k_cache, v_cache, sink, pages, slopes), options = checked_over_cache(
        q, k_cache, v_cache, pages, is_causal, scale, window, layout, variant, tf32, softcap, sink, alibi_slopes
    )
    positions = 2 if layout == "bhld" else 1
    rows, room = q.shape[positions], k_cache.shape[positions] * (1 if pages is None else pages.shape[1])
    cu_q = cu_k = None
    if lengths is not None:
        cu_q, cu_k = _ends("new", rows, q, rows), _ends("lengths", lengths, q, room)
    tensors = (q, k_cache, v_cache, sink, cu_q, cu_k, pages, None, slopes)
    if key is not None:
        ready = caches.keep_checked(key, tensors, options, rows, room)
        if ready is not None:
            quick.keep(ready, q, k_cache, v_cache, asked)
    return run(tensors, options, return_lse)


def checked_over_cache(
    q, k_cache, v_cache, pages, is_causal=True, scale=None, window=None, layout="bhld", variant=None, tf32=None, softcap=0.0, sink=None, alibi_slopes=None,
):  # fmt: skip
    """(q, k_cache, v_cache, sink, pages, slopes) and options of attention_with_cache() as the operator takes them, or an error in one sentence."""
    paged = pages is not None
    q, k_cache, v_cache, sink, _, _ = checked(q, k_cache, v_cache, None, 0.0, scale, True, layout, sink, None, None, paged, "attention_with_cache")
    if paged:
        pages = listed("pages", pages, q, (q.shape[0], 1))
        if k_cache.shape[0] == 0 or k_cache.shape[2 if layout == "bhld" else 1] == 0:
            raise ValueError(f"gpu_headroom.torch: k_cache is {tuple(k_cache.shape)}: there are no pages, or nothing in one")
    if not isinstance(is_causal, bool):
        raise TypeError(f"gpu_headroom.torch.attention_with_cache: is_causal is {one_line(is_causal)}: True or False")
    deterministic = not paged and torch.are_deterministic_algorithms_enabled()  # pages have no gradients
    options = options_of(is_causal and window is None, scale, window, "bottom-right", layout, variant, deterministic, tf32, softcap)
    return (q, k_cache, v_cache, sink, pages, slopes_over_cache(alibi_slopes, q, layout)), options


def slopes_over_cache(slopes, q, layout):
    """Without a list of documents, whose slopes a cache has not."""
    return slopes_of(slopes, q, None, layout, "attention_with_cache")


def explain(
    q: Optional[torch.Tensor] = None, k: Optional[torch.Tensor] = None, v: Optional[torch.Tensor] = None, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
    scale: Optional[float] = None, enable_gqa: bool = True, *, window: Window = None, align: str = "top-left", layout: str = "bhld",
    variant: Optional[str] = None, deterministic: bool = False, tf32: Optional[bool] = None, softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None, cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
    quantise: Optional[str] = None, alibi_slopes: Optional[torch.Tensor] = None, **misspelt: NoReturn,
) -> str:  # fmt: skip
    """Which kernel serves this call, one line per variant, best first; or the sentence that says why the call is torch's.

    Without tensors: what attn_implementation="headroom" served so far, and what it left to transformers, and why.
    """
    if misspelt:
        refuse(explain, misspelt)
    if q is None and k is None and v is None:
        return seen_so_far()
    if q is None or k is None or v is None:
        raise TypeError("gpu_headroom.torch.explain: q, k and v are given together, or none of them")
    reason, said = _served(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa, layout)
    if reason is not None:
        return f"left to torch: {reason}\n"
    if said is not None:
        is_causal, window, align, cu_seqlens_q, cu_seqlens_k = said.is_causal, said.window, said.align, said.cu_q, said.cu_k
        k, v = k[:, :, said.first : said.end], v[:, :, said.first : said.end]
    tensors = checked(q, k, v, None, dropout_p, scale, enable_gqa, layout, sink, cu_seqlens_q, cu_seqlens_k)
    tensors = (*tensors, None, None, slopes_of(alibi_slopes, q, tensors[4], layout, "explain"))
    options = options_of(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap, dropout=dropout_p, quantise=quantise)
    return arrays_attention.explained(context_of(q), call_of(*tensors, *options).problem)
