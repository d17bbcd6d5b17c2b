"""Calls of attention_with_cache that were checked before, kept by all that decides how they are computed but the numbers in their tensors, which are looked
at in each call. Small tensors that never change are made once."""

from typing import Any, Callable, Dict, NamedTuple, Optional, Tuple, Union

import torch

from .calls import KINDS, tf32_of
from .direct import any_autocast, directly, form_of, form_of_three, keep, plain, run_directly, settled

Tensor = Optional[torch.Tensor]
_MOST = 4096
FIXED = frozenset((type(None), bool, int, float, str))  # nothing changes what has one of these types
_WHOLE = frozenset((torch.int32, torch.int64))
_steady: Dict[Any, torch.Tensor] = {}
_known: Dict[Any, Any] = {}


def stays(like: torch.Tensor) -> bool:
    """Whether small tensors beside `like` may be kept: not where code is compiled, recorded, transformed or captured, which must see how they are made."""
    return not torch.compiler.is_compiling() and directly(like, like, like) and not (like.is_cuda and torch.cuda.is_current_stream_capturing())


def steady(stays: bool, device: torch.device, make: Callable[..., Any], *numbers: int) -> torch.Tensor:
    """The whole numbers make(*numbers), as a tensor that stays.

    It is never dropped, because a captured graph may read it. It is copied from the host, so every stream may read it at once.
    """
    if not stays:
        return make(*numbers, device=device)
    key = make, numbers, device
    found = _steady.get(key)
    if found is None:
        with torch.inference_mode(False):
            found = make(*numbers, device=torch.device("cpu")).to(device)
        if len(_steady) < _MOST:
            _steady[key] = found
    return found


def up_to(n: int, device: torch.device) -> torch.Tensor:
    """int64 [n]: 0, 1, …"""
    return torch.arange(n, device=device)


def each_of(n: int, device: torch.device) -> torch.Tensor:
    """int64 [n, 1]: 0, 1, …"""
    return torch.arange(n, device=device)[:, None]


def _ends_of_one(batch: int, device: torch.device) -> torch.Tensor:
    """int32 [batch, 2]: 0 and 1 in each row, which times a length are 0 and the length."""
    return torch.arange(2, dtype=torch.int32, device=device).repeat(batch, 1)


def _same_ends(batch: int, end: int, device: torch.device) -> torch.Tensor:
    """int32 [batch, 2]: 0 and the end in each row."""
    return _ends_of_one(batch, device) * end


class Kept(NamedTuple):
    """How a checked call of attention_with_cache is computed. room: how many keys a sequence has place for; cu_q and ones: with lengths."""

    settled: Any
    room: int
    cu_q: Tensor
    ones: Tensor

    def ends(self, lengths: Union[int, torch.Tensor], q: torch.Tensor) -> Tensor:
        """The list of lengths, or None where one is to be refused."""
        assert self.ones is not None
        if isinstance(lengths, int):
            return self.ones * lengths if 0 <= lengths <= self.room else None
        if q.is_cpu:
            given = lengths.tolist()
            for n in given if lengths.dim() else (given,):
                if not 0 <= n <= self.room:
                    return None
        made = self.ones * (lengths.unsqueeze(1) if lengths.dim() else lengths)
        return made if made.dtype == torch.int32 else made.int()


def key_of(q: Any, k: Any, v: Any, lengths: Any, pages: Any, sink: Any, slopes: Any, options: Tuple[Any, ...]) -> Any:
    """By which a call of attention_with_cache is kept; None: it is looked at anew. options: is_causal, scale, window, layout, variant, tf32, softcap."""
    types, window = tuple(map(type, options)), options[2]
    of_window = tuple(map(type, window)) if type(window) is tuple else ()
    if not FIXED.issuperset((*types[:2], *types[3:], *(of_window or types[2:3]))):
        return None
    if not directly(q, k, v) or any_autocast():
        return None
    for t in (lengths, pages, sink, slopes):
        if t is not None and type(t) not in plain and not (t is lengths and type(t) is int):
            return None
    kind = int
    if type(lengths) is not int:
        kind = form_of(lengths)
        if kind is not None and lengths.dtype not in _WHOLE:
            return None
    if sink is not None and sink.is_neg():
        return None
    try:
        return (
            form_of_three(q, k, v), kind, form_of(pages), form_of(sink), form_of(slopes), options, types, of_window, torch.are_deterministic_algorithms_enabled(),
            torch.get_num_threads() if q.is_cpu else tf32_of(-1, q) if options[5] is None and q.dtype == torch.float32 else None,
        )  # fmt: skip
    except RuntimeError:  # a tensor without strides
        return None


def again(key: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, lengths: Any, pages: Tensor, sink: Tensor, slopes: Tensor, layout: str,
          of_slopes: Callable[..., Tensor], return_lse: bool) -> Any:  # fmt: skip
    """What a call gives that was kept; None where it was not, or where a length is to be refused."""
    kept = _known.get(key)
    if kept is None:
        return None
    cu_k = None if kept.cu_q is None else kept.ends(lengths, q)
    if cu_k is None and kept.cu_q is not None:
        return None
    if pages is not None and pages.dim() == 1:  # of a batch of 1
        pages = pages[None]
    slopes = None if slopes is None else of_slopes(slopes, q, layout)
    return run_directly(kept.settled, return_lse, q, k, v, None if sink is None else sink.float(), kept.cu_q, cu_k, pages, None, slopes)


def keep_checked(key: Any, tensors: Tuple[Any, ...], options: Any, rows: int, room: int) -> Any:
    """The call of these tensors, as the operator takes them, is kept; what direct.settled says of it. rows: new positions of a sequence.

    In capture it is not: there its lists belong to the graph."""
    q, has_lists = tensors[0], tensors[4] is not None
    if q.device.type not in KINDS or (q.is_cuda and torch.cuda.is_current_stream_capturing()):
        return None
    ready = settled(tensors, options)
    batch, at = q.shape[0], q.device
    lists = (steady(True, at, _same_ends, batch, rows), steady(True, at, _ends_of_one, batch)) if has_lists else (None, None)
    keep(_known, key, Kept(ready, room, *lists))
    return ready
