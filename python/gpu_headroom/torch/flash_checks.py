"""Arguments of flash-attn's and FlashAttention-3's functions, looked at before anything is written or computed: what is wrong is said in one sentence.

Numbers in tensors are read on a CPU, and of pages on CUDA too, where flash-attn waits for the card as well.
"""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch
import torch.overrides

from .checks import one_line, whole_number
from .caches import FIXED
from .direct import any_autocast, directly, form_of, keep, plain
from .functions import Window
from .masks import OPEN

Tensor = Optional[torch.Tensor]
IN_8_BITS = tuple(getattr(torch, name) for name in ("float8_e4m3fn", "float8_e5m2") if hasattr(torch, name))
_NARROW = frozenset(getattr(torch, name) for name in ("int8", "uint8", "int16", "uint16", "uint32", "uint64") if hasattr(torch, name))
_checked: Dict[Any, bool] = {}


def can_be_read(numbers: torch.Tensor) -> bool:
    """Whether code may wait for what is in a tensor: not while it is compiled or captured, nor where operators are only listened to."""
    return directly(numbers, numbers, numbers) and not (numbers.is_cuda and torch.cuda.is_current_stream_capturing())


def forms_of(tensors: Sequence[Any], options: Sequence[Any] = ()) -> Optional[Tuple[Any, ...]]:
    """By which checks of tensors and options are kept: shape, type, layout and place of each tensor, and that a number is one; None: look each time."""
    if torch.compiler.is_compiling():
        return None
    made: List[Any] = []
    try:
        for t in tensors:
            if t is None or type(t) in plain:
                made.append(form_of(t))
            elif type(t) is int:
                made.append(int)
            else:
                return None
    except RuntimeError:  # a nested tensor has no shape
        return None
    for value in options:
        kind = type(value)
        if kind is tuple:
            kind = tuple(map(type, value))
        made += kind, value
        if not FIXED.issuperset(kind if type(kind) is tuple else (kind,)):
            return None
    return tuple(made)


def checked_once(form: Optional[Tuple[Any, ...]], check: Callable[..., None], *arguments: Any) -> None:
    """check(*arguments), which looks at no more than the form says; not again for a form that was seen."""
    if form is None or any_autocast():
        check(*arguments)
    elif (check, form) not in _checked:
        check(*arguments)
        keep(_checked, (check, form), True)


def flag(name: str, value: Any) -> bool:
    """True or False, of what flash-attn takes for them: numbers and NumPy's booleans, too."""
    if type(value) is bool:
        return value
    number = int(value) if type(value).__module__ == "numpy" and type(value).__name__ in ("bool", "bool_") else whole_number(value)
    if number is None and isinstance(value, torch.Tensor) and value.numel() == 1 and value.dtype == torch.bool:
        number = int(value)
    if number not in (0, 1):
        raise TypeError(f"gpu_headroom.torch: {name} is {one_line(value)}: True or False")
    return bool(number)


def mask_of(causal: Any, window_size: Any) -> Tuple[bool, Window]:
    """(causal without a window, our window or None) of flash-attn's causal and window_size."""
    if causal is not False and causal is not True:
        causal = flag("causal", causal)
    try:
        before, after = window_size
    except (TypeError, ValueError):
        raise TypeError(f"gpu_headroom.torch: window_size is {one_line(window_size)}: two whole numbers, -1 for an open side") from None
    if type(before) is not int or type(after) is not int:
        before, after = whole_number(before), whole_number(after)
    if before is None or after is None:
        raise TypeError(f"gpu_headroom.torch: window_size is {one_line(window_size)}: two whole numbers, -1 for an open side")
    after = 0 if causal else after
    if before < 0 and (after < 0 or causal):
        return causal, None
    return False, (OPEN if before < 0 else before + 1, OPEN if after < 0 else after)


def cap_of(softcap: Any) -> Any:
    """Our soft cap of flash-attn's, where what is not above 0 is none."""
    return 0.0 if isinstance(softcap, (int, float)) and softcap <= 0 else softcap


def check_tensor(where: str, name: str, t: Any, dims: Sequence[int], what: str, like: Tensor = None) -> Any:
    """t, where it is a tensor of so many dimensions beside `like`. what: its shape in words."""
    if not isinstance(t, torch.Tensor):
        if torch.overrides.has_torch_function((t,)):  # what stands for a tensor answers by itself, as torch.fx's proxies
            return t
        raise TypeError(f"gpu_headroom.torch.{where}: {name} is {one_line(t)}: a tensor {what}")
    if t.layout != torch.strided or t.is_nested:
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is nested or sparse: a strided tensor {what}")
    if t.dim() not in dims:
        raise ValueError(f"gpu_headroom.torch.{where}: {name} has {t.dim()} dimensions: a tensor {what}")
    if like is not None and t.device != like.device:
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is on {t.device}, the other tensors are on {like.device}")
    return t


def check_whole(where: str, name: str, t: Any, shape: Tuple[int, ...], like: torch.Tensor, least: Optional[int] = None, most: Optional[int] = None) -> None:
    """A tensor of whole numbers of this shape; on a CPU from `least` to `most`."""
    check_tensor(where, name, t, (len(shape),), f"of whole numbers {shape}", like)
    if t.is_floating_point() or t.is_complex() or t.dtype == torch.bool or tuple(t.shape) != tuple(shape):
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is {t.dtype} {tuple(t.shape)}, it must be whole numbers {shape}")
    if least is not None and most is not None:
        check_within(where, name, t, least, most)


def check_within(where: str, name: str, t: torch.Tensor, least: int, most: int) -> None:
    """Numbers from `least` to `most`, on a CPU."""
    if not t.is_cpu or not can_be_read(t):
        return
    for number in t.flatten().tolist():
        if not least <= number <= most:
            raise ValueError(f"gpu_headroom.torch.{where}: {name} has {number}: numbers from {least} to {most} are served")


def wide(numbers: Any) -> Any:
    """Whole numbers in a type whose sums and differences do not wrap."""
    return numbers.int() if isinstance(numbers, torch.Tensor) and numbers.dtype in _NARROW else numbers


def room_of(cache: torch.Tensor, pages: Tensor) -> int:
    """How many keys a sequence has place for."""
    return cache.shape[1] if pages is None else cache.shape[1] * pages.shape[1]


def check_list(where: str, name: str, cu: Any, like: torch.Tensor) -> None:
    """int32 [sequences + 1]."""
    check_tensor(where, name, cu, (1,), "int32 (sequences + 1,)", like)
    if cu.dtype != torch.int32 or cu.shape[0] < 2:
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is {cu.dtype} {tuple(cu.shape)}, it must be torch.int32 (sequences + 1,)")


def check_used(where: str, name: str, used: torch.Tensor, cu: torch.Tensor) -> None:
    """seqused_q and seqused_k: at most what each sequence has. On a CPU."""
    if not used.is_cpu or not cu.is_cpu or not can_be_read(used) or not can_be_read(cu):
        return
    for b, (n, most) in enumerate(zip(used.tolist(), cu.diff().tolist())):
        if not 0 <= n <= most:
            raise ValueError(f"gpu_headroom.torch.{where}: {name}[{b}] is {n}, the sequence has {most} tokens")


def check_packed(where: str, name: str, t: Any, what: str, at: int, parts: int) -> None:
    """qkv and kv in one tensor: its dimension `at` has so many parts."""
    check_tensor(where, name, t, (what.count(",") + 1,), what)
    if isinstance(t, torch.Tensor) and t.shape[at] != parts:
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is {tuple(t.shape)}: a tensor {what}")


def check_ends(where: str, name: str, cu: torch.Tensor, tokens: int, most: Optional[int] = None) -> None:
    """A list of sequences in tokens that are packed, on a CPU. most: how many tokens a sequence has at most."""
    if not cu.is_cpu or not can_be_read(cu):
        return
    ends = cu.tolist()
    if ends[0] != 0 or ends[-1] > tokens or ends != sorted(ends):
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is {one_line(ends)}: from 0 on, in order, up to {tokens} tokens")
    longest = max(end - begin for begin, end in zip(ends, ends[1:]))
    if most is not None and longest > most:
        raise ValueError(f"gpu_headroom.torch.{where}: a sequence of {name} has {longest} tokens, and max_seqlen_q is {most}")


def check_pages(where: str, name: str, table: Any, sequences: Optional[int], like: torch.Tensor) -> None:
    check_tensor(where, name, table, (2,), "int32 [sequences, pages of one]", like)
    if table.dtype != torch.int32 or (sequences is not None and table.shape[0] != sequences):
        want = "sequences" if sequences is None else sequences
        raise ValueError(f"gpu_headroom.torch.{where}: {name} is {table.dtype} {tuple(table.shape)}, it must be torch.int32 ({want}, pages of a sequence)")


def check_page_numbers(where: str, name: str, numbers: torch.Tensor, pages: int) -> None:
    """Pages that are read or written, on a CPU."""
    if numbers.numel() == 0 or not numbers.is_cpu or not can_be_read(numbers):
        return
    least, most = int(numbers.min()), int(numbers.max())
    if least < 0 or most >= pages:
        raise ValueError(f"gpu_headroom.torch.{where}: {name} names page {least if least < 0 else most}: there are pages 0 to {pages - 1}")


def in_range(where: str, name: str, table: torch.Tensor, lengths: torch.Tensor, cache: torch.Tensor) -> torch.Tensor:
    """The table as an index of pages. Where a sequence has ended it may hold anything, which stands for page 0; what is read is looked at on a CPU."""
    begins = torch.arange(table.shape[1], device=table.device) * cache.shape[1]
    pages = torch.where(begins < lengths[:, None], table, 0).long()
    check_page_numbers(where, name, pages, cache.shape[0])
    return pages


def check_new(where: str, caches: Tuple[Any, Any], k: Any, v: Any, cos: Any, sin: Any, lengths: Any, batch: Optional[int]) -> None:
    """New keys and values that are written into the caches, and rotary embeddings for them. batch: None where they are packed."""
    if (k is None) != (v is None):
        raise ValueError(f"gpu_headroom.torch.{where}: k and v are given together, or neither")
    if (cos is None) != (sin is None) or (cos is not None and k is None):
        raise ValueError(f"gpu_headroom.torch.{where}: rotary_cos, rotary_sin, k and v are given together")
    if k is None:
        return
    if lengths is None:
        raise ValueError(f"gpu_headroom.torch.{where}: k and v need cache_seqlens, where they are written")
    what = "[tokens, kv_heads, head_dim]" if batch is None else "[batch, new, kv_heads, head_dim]"
    for name, t, cache in (("k", k, caches[0]), ("v", v, caches[1])):
        check_tensor(where, name, t, (what.count(",") + 1,), what, cache)
        want = (*k.shape[:1], *cache.shape[2:]) if batch is None else (batch, k.shape[1], *cache.shape[2:])
        if t.dtype != cache.dtype or tuple(t.shape) != want:
            raise ValueError(f"gpu_headroom.torch.{where}: {name} is {t.dtype} {tuple(t.shape)}, it must be {cache.dtype} {want}, as {name}_cache is")
    if cos is not None:
        check_rotary(where, cos, sin, k)


def check_rotary(where: str, cos: Any, sin: Any, k: torch.Tensor) -> None:
    for name, t in (("rotary_cos", cos), ("rotary_sin", sin)):
        check_tensor(where, name, t, (2,), "[positions, half of the dimensions that turn]", k)
        if not t.is_floating_point() or t.shape != cos.shape or 2 * t.shape[1] > k.shape[-1]:
            raise ValueError(f"gpu_headroom.torch.{where}: {name} is {t.dtype} {tuple(t.shape)}, it must be floating-point numbers like rotary_cos, of at most "
                             f"{k.shape[-1] // 2} dimensions: half of head_dim")  # fmt: skip


def check_caches(where: str, q: Any, k_cache: Any, v_cache: Any, dims: int = 4) -> None:
    """q, of `dims` dimensions, and the caches; attention_with_cache() looks at the rest."""
    check_tensor(where, "q", q, (dims,), "[batch, new, heads, head_dim]" if dims == 4 else "[tokens, heads, head_dim]")
    for name, t in (("k_cache", k_cache), ("v_cache", v_cache)):
        check_tensor(where, name, t, (4,), "[batch, room, kv_heads, head_dim], or [pages, page, kv_heads, head_dim]", q)
    if k_cache.shape[:3] != v_cache.shape[:3]:
        raise ValueError(f"gpu_headroom.torch.{where}: k_cache is {tuple(k_cache.shape)} and v_cache is {tuple(v_cache.shape)}: all but head_dim must agree")
    if q.shape[-1] != k_cache.shape[3]:
        raise ValueError(f"gpu_headroom.torch.{where}: q is {tuple(q.shape)} and k_cache is {tuple(k_cache.shape)}: head_dim must agree")


def check_lengths(where: str, lengths: Any, batch: int, like: torch.Tensor) -> None:
    """cache_seqlens: whole numbers [batch], or one for all."""
    if lengths is None:
        return
    if isinstance(lengths, torch.Tensor):
        if lengths.dim() == 0 and not lengths.is_floating_point() and not lengths.is_complex():
            return
        check_whole(where, "cache_seqlens", lengths, (batch,), like)
    elif whole_number(lengths) is None:
        raise TypeError(f"gpu_headroom.torch.{where}: cache_seqlens is {one_line(lengths)}: a tensor of whole numbers, or one number")


def check_room(where: str, lengths: Any, new: int, room: int, paged: bool) -> None:
    if lengths is None:
        return
    if isinstance(lengths, torch.Tensor):
        if lengths.numel() == 0 or not (paged or lengths.is_cpu) or not can_be_read(lengths):
            return
        numbers = lengths.tolist() if lengths.dim() == 1 else [lengths.item()]  # of pages flash-attn waits for the card here too; once
        least, most = min(numbers), max(numbers)
    else:
        number = whole_number(lengths)
        least = most = 0 if number is None else number
    if least < 0:
        raise RuntimeError(f"gpu_headroom.torch.{where}: a sequence of {least} keys: at least 0 are served")
    if most + new > room:
        of_pages = "page_table" if "flash_attn_3" in where else "block_table"
        have, by = ("its pages have", f", as {of_pages} says") if paged else ("the cache has", "")
        raise RuntimeError(f"gpu_headroom.torch.{where}: a sequence of {most + new} keys, {have} room for {room}{by}")
