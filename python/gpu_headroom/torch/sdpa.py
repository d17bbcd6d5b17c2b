"""Models that call torch's scaled_dot_product_attention, unchanged."""

import collections
import contextlib
from typing import Iterator

import torch

from .. import library as lib
from .checks import cast, options_of, reason_why_not
from .direct import run

_torchs = torch.nn.functional.scaled_dot_product_attention
_replacing = []  # the innermost last


class Replacement:
    """What a replace_sdpa() saw: `served` calls, and how many were `left` to torch for which reason. Calls of compiled code are
    not counted: its graph shows headroom.attention_forward where ours is."""

    def __init__(self) -> None:
        self.served = 0
        self.left: "collections.Counter[str]" = collections.Counter()

    def explain(self) -> str:
        """One line for the calls that were served, and one for each reason why others were left to torch."""
        lines = [f"served by headroom: {self.served} calls"]
        lines += [f"left to torch: {count} calls: {reason}" for reason, count in self.left.most_common()]
        return "\n".join(lines) + "\n"


def _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if seen is not None:
        seen.left[reason] += 1
    rest = {"enable_gqa": enable_gqa} if enable_gqa else {}  # torch 2.4 has no such argument
    return _torchs(query, key, value, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **rest)


def _sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    seen = None if torch.compiler.is_compiling() or not _replacing else _replacing[-1]
    if all(isinstance(t, torch.Tensor) for t in (query, key, value)):
        q, k, v = cast([query, key, value])
    else:
        q, k, v = query, key, value
    reason = reason_why_not(q, k, v, attn_mask, dropout_p, scale, enable_gqa, "bhld")
    if reason is not None:
        return _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)
    options = options_of(bool(is_causal), scale, None, "top-left", "bhld", None, torch.are_deterministic_algorithms_enabled(), None)
    try:
        o = run((q, k, v, None, None, None, None), options)[0]
    except lib.Error as refused:  # no kernel for this device, no driver, a library without CUDA
        if refused.status != "unsupported":
            raise
        reason = str(refused)
    else:
        if seen is not None:
            seen.served += 1
        return o
    return _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


@contextlib.contextmanager
def replace_sdpa() -> Iterator[Replacement]:
    """Within it torch.nn.functional.scaled_dot_product_attention is headroom's, where headroom serves the call, in every thread.

    Yields a Replacement, whose explain() says which calls were left to torch, and why.
    """
    seen = Replacement()
    _replacing.append(seen)
    torch.nn.functional.scaled_dot_product_attention = _sdpa
    try:
        yield seen
    finally:
        _replacing.remove(seen)
        if not _replacing:
            torch.nn.functional.scaled_dot_product_attention = _torchs
