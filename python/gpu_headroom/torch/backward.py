"""Attention's backward by itself, for an autograd.Function of the caller's own, and into memory of the caller's own."""

from typing import Any, NoReturn, Optional, Tuple

import torch

from .calls import KINDS, call_of
from .checks import check_made, checked, checked_seed, options_of, refuse, slopes_of
from .direct import directly
from .functions import Window

Given = Tuple[Optional[torch.Tensor], ...]


def attention_backward(
    d_o: torch.Tensor,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    o: torch.Tensor,
    lse: torch.Tensor,
    is_causal: bool = False,
    scale: Optional[float] = None,
    *,
    dlse: Optional[torch.Tensor] = None,
    window: Window = None,
    align: str = "top-left",
    layout: str = "bhld",
    variant: Optional[str] = None,
    deterministic: bool = False,
    tf32: Optional[bool] = None,
    softcap: float = 0.0,
    sink: Optional[torch.Tensor] = None,
    cu_seqlens_q: Optional[torch.Tensor] = None,
    cu_seqlens_k: Optional[torch.Tensor] = None,
    dropout_p: float = 0.0,
    seed: Optional[torch.Tensor] = None,
    alibi_slopes: Optional[torch.Tensor] = None,
    **misspelt: NoReturn,
) -> Tuple[torch.Tensor, ...]:
    """(dq, dk, dv), and dsink where there is a sink: for an autograd.Function of your own. attention() does this by itself.

    o [as q, with v's head_dim] and lse [batch, heads, len_q], float32, as attention(…, return_lse=True) left them; d_o: the gradient of o;
    dlse: that of lse, if it was used. Everything else as it was said to attention(), with dropout_p its seed too.
    """
    if misspelt:
        refuse(attention_backward, misspelt)
    asked = is_causal, scale, dlse, window, align, layout, variant, deterministic, tf32, softcap, sink, cu_seqlens_q, cu_seqlens_k, dropout_p, seed, alibi_slopes
    arguments, options = _checked(d_o, q, k, v, o, lse, *asked)
    made = torch.ops.headroom.attention_backward(*arguments, *options)
    return tuple(made if sink is not None else made[:3])


def _checked(
    d_o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, is_causal: bool, scale: Optional[float],
    dlse: Optional[torch.Tensor], window: Window, align: str, layout: str, variant: Optional[str], deterministic: bool, tf32: Optional[bool], softcap: float,
    sink: Optional[torch.Tensor], cu_q: Optional[torch.Tensor], cu_k: Optional[torch.Tensor], dropout_p: float, seed: Optional[torch.Tensor],
    slopes: Optional[torch.Tensor],
) -> Tuple[Tuple[Any, ...], Tuple[Any, ...]]:  # fmt: skip
    """The operator's tensors, and its options."""
    tensors = checked(q, k, v, None, dropout_p, scale, True, layout, sink, cu_q, cu_k, of="attention_backward")
    if dropout_p != 0 and seed is None:
        raise ValueError("gpu_headroom.torch.attention_backward: dropout_p needs the seed that attention() was given")
    check_made("gpu_headroom.torch.attention_backward", q, v, layout == "bhld", d_o, o, lse, dlse)
    options = options_of(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap, dropout=dropout_p)
    small = (*tensors[3:], checked_seed(seed, dropout_p, q), slopes_of(slopes, q, tensors[4], layout, "attention_backward"))
    return (d_o, dlse, *tensors[:3], o, lse, *small), options


def write_gradients(
    into: Given, d_o: torch.Tensor, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, o: torch.Tensor, lse: torch.Tensor, *, is_causal: bool,
    scale: Optional[float], window: Window, layout: str, softcap: float, deterministic: bool, dropout_p: float, seed: Optional[torch.Tensor],
    alibi_slopes: Optional[torch.Tensor], cu_seqlens_q: Optional[torch.Tensor] = None, cu_seqlens_k: Optional[torch.Tensor] = None,
) -> None:  # fmt: skip
    """Gradients into dq, dk and dv, those that are given: in place where kernels write such a tensor, else by a copy."""
    asked = is_causal, scale, None, window, "bottom-right", layout, None, deterministic, None, softcap, None, cu_seqlens_q, cu_seqlens_k, dropout_p, seed
    arguments, options = _checked(d_o, q, k, v, o, lse, *asked, alibi_slopes)
    written: Given = (None, None, None)
    if q.device.type in KINDS and directly(q, k, v) and directly(d_o, o, lse):
        call = call_of(*arguments[2:5], *arguments[7:10], None, *arguments[10:], *options)
        inputs = [t.untyped_storage().data_ptr() for t in (d_o, q, k, v, o, lse)]
        written = tuple(t if t is not None and call.writes(t, like) and t.untyped_storage().data_ptr() not in inputs else None for t, like in zip(into, (q, k, v)))
        made = call.backward(*arguments, into=written)
    else:
        made = torch.ops.headroom.attention_backward(*arguments, *options)
    for t, there, gradient in zip(into, written, made):
        if t is not None and there is None:
            t.copy_(gradient)
