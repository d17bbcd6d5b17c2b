"""Calls of attention() that were checked before, kept by all that decides how they are checked and computed but the numbers in their tensors.

`asked` is what attention() was asked beside q, k and v, in the order of its arguments.
"""

import torch

from . import quick
from .calls import tf32_of
from .checks import check_quantise, checked, checked_seed, options_of, slopes_of, with_signs
from .direct import draw_of, form_of, form_of_three, keep, known, plain, run_directly, seed_of, settled


def key_of(q, k, v, asked, window, deterministic):
    """By which a call is kept: all that decides how it is checked and computed, but for the numbers in tensors; None: it is looked at anew.

    1 and True are one key, and not one answer: so types are in it."""
    attn_mask, dropout_p, is_causal, scale, enable_gqa, _, align, layout, variant, _, tf32, softcap, sink, cu_q, cu_k, seed, quantise, slopes = asked
    if attn_mask is not None or seed is not None or type(dropout_p) not in (float, int):
        return None
    for t in (sink, cu_q, cu_k, slopes):
        if t is not None and type(t) not in plain:
            return None
    return (
        form_of_three(q, k, v), is_causal, is_causal is True, deterministic, None if window is None else (window, type(window)), None if tf32 is None else (tf32, type(tf32)),
        scale, align, layout, softcap, type(softcap), variant, enable_gqa, type(enable_gqa), quantise, dropout_p,
        form_of(sink), form_of(cu_q), form_of(cu_k), form_of(slopes),
        torch.get_num_threads() if q.is_cpu else tf32_of(-1, q) if tf32 is None and q.dtype == torch.float32 else None,
    )  # fmt: skip


def again(found, q, k, v, return_lse, asked):
    """A call that was checked before. What is checked in each call: whether tensors have gradients that there are none of."""
    dropout_p, layout, sink, cu_q, cu_k, quantise, slopes = asked[1], asked[7], asked[12], asked[13], asked[14], asked[16], asked[17]
    if quantise is not None:
        check_quantise(quantise, (q, k, v, sink))
    if cu_q is not None:
        cu_q = cu_q if cu_q.dim() == 2 else cu_q[None]
        cu_k = cu_q if cu_k is None else cu_k if cu_k.dim() == 2 else cu_k[None]
    slopes = None if slopes is None else slopes_of(slopes, q, cu_q, layout)
    sink = None if sink is None else with_signs((sink,))[0].float()
    return run_directly(found, return_lse, q, k, v, sink, cu_q, cu_k, None, None if dropout_p == 0 else seed_of(q, dropout_p), slopes)


def checked_call(q, k, v, asked, window, deterministic):
    """The operator's tensors and options, or an error in one sentence."""
    attn_mask, dropout_p, is_causal, scale, enable_gqa, _, align, layout, variant, _, tf32, softcap, sink, cu_q, cu_k, seed, quantise, slopes = asked
    tensors = checked(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, sink, cu_q, cu_k)
    options = options_of(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap, dropout=dropout_p, quantise=quantise)
    if quantise is not None:
        check_quantise(quantise, tensors[:4])
    return (*tensors, None, seed_of(q, dropout_p, checked_seed(seed, dropout_p, q)), slopes_of(slopes, q, tensors[4], layout)), options


def keep_call(key, q, k, v, tensors, options, asked):
    ready = settled(tensors, options)
    keep(known, key, ready)
    if asked[16] is None:  # quantise, which is checked in each call
        quick.keep(ready, q, k, v, asked, draw_of(q.device) if asked[1] else None)
