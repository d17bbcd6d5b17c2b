"""Arguments, checked: the operators' tensors and options, or an error in one sentence."""

import math
import numbers
import operator
import re

import torch

from .. import words
from .calls import KINDS, NAMES

_LAYOUTS = ("bhld", "blhd")
SERVED = " and ".join(", ".join(map(str, NAMES)).rsplit(", ", 1))


def reason_why_not(*call):
    """Why a call is not served, in one sentence, or None; `call` as _misfit's."""
    misfit = _misfit(*call)
    return None if misfit is None else misfit[1]


def misfit_of_tensors(q, k, v):
    """As _misfit, of what nothing that is asked changes."""
    for name, t in (("q", q), ("k", k), ("v", v)):
        if not isinstance(t, torch.Tensor):
            return TypeError, f"{name} is a {type(t).__name__}, not a tensor"
        if t.device.type not in KINDS and t.device.type != "meta":  # meta tensors have shapes alone
            return ValueError, f"{name} is on {t.device}: served are cpu and cuda"
        if t.dtype not in NAMES:
            return TypeError, f"{name} is {t.dtype}: served are {SERVED}"
        if t.dim() != 4:
            return ValueError, f"{name} has {t.dim()} dimensions: 4 are served, [batch, heads, len, head_dim] or layout='blhd'"
        if t.is_nested or t.layout != torch.strided:
            return ValueError, f"{name} is nested or sparse: only strided tensors are served"
        if t.device != q.device:
            return ValueError, f"{name} is on {t.device}, q is on {q.device}"
        if t.dtype != q.dtype:
            return TypeError, f"{name} is {t.dtype}, q is {q.dtype}: all have one dtype"
    if k.shape[:3] != v.shape[:3]:
        return ValueError, f"k is {tuple(k.shape)} and v is {tuple(v.shape)}: all but head_dim must agree"
    return None


def _misfit(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, paged=False):
    """The error's type and its sentence; None where the call is served."""
    if not isinstance(layout, str) or layout not in _LAYOUTS:
        return ValueError, f"layout {one_line(layout)}: bhld ([batch, heads, len, head_dim], torch's) or blhd ([batch, len, heads, head_dim])"
    misfit = misfit_of_tensors(q, k, v)
    if misfit is not None:
        return misfit
    if attn_mask is not None:
        return ValueError, "a mask given as a tensor (attn_mask) is not served: say is_causal or window, or leave it out"
    if isinstance(dropout_p, bool) or not isinstance(dropout_p, (numbers.Real, torch.SymFloat)):
        return TypeError, f"dropout_p is a {type(dropout_p).__name__}: a number, at least 0 and below 1"
    if not 0 <= dropout_p < 1:  # a NaN, too
        return ValueError, f"dropout_p is {dropout_p}: served are 0 and what is above it and below 1"
    if dropout_p != 0 and (paged or hasattr(q, "placements")):
        return ValueError, f"dropout_p is {dropout_p}: dropout {'over a cache in pages' if paged else 'of a DTensor'} is not served"
    if scale is not None and not isinstance(scale, (numbers.Real, torch.SymFloat)):
        return TypeError, f"scale is a {type(scale).__name__}: a number, or None for 1/sqrt(head_dim)"
    if scale is not None and not -math.inf < scale < math.inf:  # in words that compiled code has for symbols too
        return ValueError, f"scale is {scale}: it must be finite"
    rows = 1 if layout == "bhld" else 2
    if (q.shape[0] != k.shape[0] and not paged) or q.shape[3] != k.shape[3]:
        return ValueError, f"q is {tuple(q.shape)} and k is {tuple(k.shape)}: {'' if paged else 'batch and '}head_dim must agree"
    heads, kv_heads = q.shape[rows], k.shape[rows]
    if kv_heads == 0 or heads % kv_heads != 0:
        return ValueError, f"{heads} query heads cannot share {kv_heads} key heads: the first must be a multiple of the second"
    if not isinstance(enable_gqa, bool):
        return TypeError, f"enable_gqa is a {kind_of(enable_gqa)}: True or False"
    if heads != kv_heads and not enable_gqa:
        return ValueError, f"{heads} query heads and {kv_heads} key heads need enable_gqa=True"
    for t in (q, v):
        if t.shape[3] < 1 or t.shape[3] > 256:
            return ValueError, f"head_dim is {t.shape[3]}: 1 to 256 are served"
    return None


def with_signs(tensors):
    """Without torch's negative bit (x.conj().imag), under which memory holds the numbers with the other sign."""
    if torch.compiler.is_compiling():
        return tensors
    return [t.resolve_neg() if isinstance(t, torch.Tensor) and t.is_neg() else t for t in tensors]


def cast(tensors):
    """What autocast makes of the inputs of scaled_dot_product_attention, with their signs in memory."""
    tensors = with_signs(tensors)
    kind = tensors[0].device.type
    if kind not in KINDS or not torch.is_autocast_enabled(kind):
        return tensors
    to = torch.get_autocast_dtype(kind)
    return [t.to(to) if t.is_floating_point() and t.dtype != torch.float64 else t for t in tensors]


def whole_number(value):
    """`value` as an int where it is one of any kind (NumPy's, a tensor of one whole number); None where it is not."""
    if type(value) is int or isinstance(value, torch.SymInt):  # operator.index would compile a graph for each number
        return value
    try:
        return None if isinstance(value, bool) or (isinstance(value, torch.Tensor) and value.dtype == torch.bool) else operator.index(value)
    except TypeError:
        return None


def window_of(window):
    """(keys up to its own that a row sees, keys after), or an error in one sentence."""
    both = window if isinstance(window, tuple) and len(window) == 2 else (window, 0)
    before, after = (whole_number(n) for n in both)
    if before is None or after is None:
        raise TypeError(
            f"window is {one_line(window)}: the number of keys that a row sees, its own and those before; or (that, the number of keys after)"
        )
    if before < 1 or after < 0:
        raise ValueError(f"window is {window}: a row sees at least its own key, so at least 1, and at least 0 after")
    return before, after


def kind_of(value):
    """With its module where it has one: NumPy's bool is called bool, too."""
    of = type(value)
    return of.__name__ if of.__module__ == "builtins" else f"{of.__module__}.{of.__name__}"


def one_line(value):
    """A value of any kind in an error's sentence."""
    if isinstance(value, torch.Tensor):
        return f"a tensor of {value.dtype} {tuple(value.shape)}"
    said = repr(value).split("\n")[0]
    return said if len(said) <= 60 else said[:57] + "..."


def options_of(is_causal, scale, window, align, layout, variant, deterministic, tf32, softcap=0.0, order=0, dropout=0.0, quantise=None):
    if not isinstance(align, str) or align not in ("top-left", "bottom-right"):
        raise ValueError(f"align {one_line(align)}: top-left (torch's: row i sees keys up to i) or bottom-right (the last row sees the last key)")
    if not isinstance(is_causal, bool):
        raise TypeError(f"is_causal is a {kind_of(is_causal)}: True or False")
    if window is not None:
        if is_causal:
            raise ValueError("is_causal and window are both given: a window is causal already, leave is_causal out")
        both = window_of(window)
    if variant is not None and not isinstance(variant, str):
        raise TypeError(f"variant is a {type(variant).__name__}: a name as explain() lists them, or None for the best")
    for name, value in (("deterministic", deterministic), ("tf32", tf32)):
        if not isinstance(value, bool) and not (name == "tf32" and value is None):
            raise TypeError(f"{name} is a {kind_of(value)}: True or False{', or None for what torch says' if name == 'tf32' else ''}")
    if isinstance(softcap, bool) or not isinstance(softcap, (numbers.Real, torch.SymFloat)) or not 0 <= softcap < math.inf:
        raise ValueError(f"softcap is {one_line(softcap)}: a number above 0, or 0 for none")
    mask = 2 if window is not None else 1 if is_causal else 0
    width, after = (0, 0) if window is None else both
    scale = None if scale is None else float(scale)
    return (mask, align == "top-left" and mask != 0, width, after, float(softcap), scale, layout == "bhld", variant or "", bool(deterministic),
            -1 if tf32 is None else int(bool(tf32)), order, float(dropout), bool(words.quantise_to(quantise)))  # fmt: skip


def listed(name, t, q, shape):
    """An int32 tensor of this shape beside q; a batch of 1 may leave its dimension out."""
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"gpu_headroom.torch: {name} is a {type(t).__name__}, not a tensor")
    if t.dtype != torch.int32:
        raise TypeError(f"gpu_headroom.torch: {name} is {t.dtype}, it must be torch.int32: pass {name}.int()")
    if t.device != q.device:
        raise ValueError(f"gpu_headroom.torch: {name} is on {t.device}, q is on {q.device}")
    if t.dim() == 1 and shape[0] == 1:
        t = t[None]
    if t.dim() != 2 or t.shape[0] != shape[0] or t.shape[1] < shape[1]:
        raise ValueError(f"gpu_headroom.torch: {name} is {tuple(t.shape)}, it must be ({shape[0]}, at least {shape[1]})")
    return t


def _numbers(t):
    """A small tensor beside q as float32, with its signs in memory."""
    return with_signs((t,))[0].float()


def _with(q, heads, sink, cu_q, cu_k):
    """sink, cu_seqlens_q and cu_seqlens_k, checked, as the operator takes them."""
    if sink is not None:
        if not isinstance(sink, torch.Tensor) or not sink.is_floating_point():
            said = sink.dtype if isinstance(sink, torch.Tensor) else f"a {type(sink).__name__}"
            raise TypeError(f"gpu_headroom.torch: sink is {said}, it must be a tensor of {heads} floating-point numbers, one for each head")
        if sink.device != q.device:
            raise ValueError(f"gpu_headroom.torch: sink is on {sink.device}, q is on {q.device}")
        if sink.dim() != 1 or sink.shape[0] != heads:
            raise ValueError(f"gpu_headroom.torch: sink is {tuple(sink.shape)}, it must be ({heads},): one number for each head")
        sink = _numbers(sink)
    if cu_q is None:
        if cu_k is not None:
            raise ValueError("gpu_headroom.torch: cu_seqlens_k is given without cu_seqlens_q")
        return sink, None, None
    cu_q = listed("cu_seqlens_q", cu_q, q, (q.shape[0], 2))
    cu_k = cu_q if cu_k is None else listed("cu_seqlens_k", cu_k, q, (q.shape[0], 2))
    if cu_q.shape != cu_k.shape:
        raise ValueError(f"gpu_headroom.torch: cu_seqlens_q is {tuple(cu_q.shape)} and cu_seqlens_k is {tuple(cu_k.shape)}: they must agree")
    return sink, cu_q, cu_k


def checked_slopes(slopes, q, shapes, of="attention"):
    """ALiBi's slopes as the operator takes them, float32 of one of these shapes, or None."""
    if slopes is None:
        return None
    if not isinstance(slopes, torch.Tensor) or not slopes.is_floating_point():
        said = slopes.dtype if isinstance(slopes, torch.Tensor) else f"a {type(slopes).__name__}"
        raise TypeError(f"gpu_headroom.torch.{of}: alibi_slopes is {said}, it must be a tensor of floating-point numbers, one for each head")
    if slopes.device != q.device:
        raise ValueError(f"gpu_headroom.torch.{of}: alibi_slopes is on {slopes.device}, q is on {q.device}")
    if slopes.is_nested or slopes.layout != torch.strided:
        raise ValueError(f"gpu_headroom.torch.{of}: alibi_slopes is nested or sparse: only strided tensors are served")
    if not any(len(shape) == slopes.dim() and all(a == b for a, b in zip(slopes.shape, shape)) for shape in shapes):  # `in` has no symbols of compiled code
        allowed = " or ".join(map(str, shapes))
        raise ValueError(f"gpu_headroom.torch.{of}: alibi_slopes is {tuple(slopes.shape)}, it must be {allowed}: a number for each head")
    if slopes.requires_grad and torch.is_grad_enabled():
        raise ValueError(f"gpu_headroom.torch.{of}: alibi_slopes requires a gradient, which there is none of: pass alibi_slopes.detach()")
    slopes = _numbers(slopes)
    # DTensor keeps an operator's placements by the tensors that are given, in their order: alone, [heads] might be a sink.
    return slopes.expand(shapes[1]) if hasattr(q, "placements") and slopes.dim() == 1 else slopes


def slopes_of(slopes, q, cu_q, layout, of="attention"):
    if slopes is None:
        return None
    batch, heads = q.shape[0], q.shape[1 if layout == "bhld" else 2]
    return checked_slopes(slopes, q, [(heads,), (batch, heads), *([] if cu_q is None else [(batch, cu_q.shape[1] - 1, heads)])], of)


def check_beside(of, q, **tensors):
    """Small tensors as an operator is handed them: type, dimensions and place. Whether their shapes fit the problem, the library says."""
    served = {"sink": (torch.float32, (1,)), "alibi": (torch.float32, (1, 2, 3))}
    for name, t in tensors.items():
        dtype, ranks = served.get(name, (torch.int32, (2,)))
        if t is not None and (t.dtype != dtype or t.dim() not in ranks or t.device != q.device):
            raise ValueError(
                f"{of}: {name} is {t.dtype} {tuple(t.shape)} on {t.device}, it must be {dtype} of {' or '.join(map(str, ranks))} dimensions on {q.device}"
            )


def check_made(of, q, v, heads_first, d_o, o, lse, dlse):
    """What a forward call made, and the gradients of that."""
    shape = (*q.shape[:3], v.shape[3])
    lse_shape = q.shape[:3] if heads_first else (q.shape[0], q.shape[2], q.shape[1])
    for name, t, dtype, want in (("d_o", d_o, q.dtype, shape), ("o", o, q.dtype, shape), ("lse", lse, torch.float32, lse_shape),
                                 ("dlse", dlse, torch.float32, lse_shape)):  # fmt: skip
        if name == "dlse" and t is None:
            continue
        if not isinstance(t, torch.Tensor):
            raise TypeError(f"{of}: {name} is a {type(t).__name__}, not a tensor")
        if t.dtype != dtype or t.device != q.device or tuple(t.shape) != tuple(want):
            raise ValueError(f"{of}: {name} is {t.dtype} {tuple(t.shape)} on {t.device}, it must be {dtype} {tuple(want)} on {q.device}")


def check_quantise(quantise, tensors):
    """Attention in fp8 takes bfloat16 and has no gradients."""
    words.check_quantised(words.quantise_to(quantise), NAMES[tensors[0].dtype])
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        raise ValueError(
            "gpu_headroom.torch.attention: attention in fp8 has no gradients, and a tensor requires one: call it under torch.no_grad(), or "
            "leave quantise out"
        )


def checked_seed(seed, dropout_p, q):
    if seed is None:
        return None
    if not isinstance(seed, torch.Tensor):
        raise TypeError(f"gpu_headroom.torch: seed is a {type(seed).__name__}: an int64 tensor [2] beside q, of seed and offset")
    if seed.dtype != torch.int64 or tuple(seed.shape) != (2,) or seed.device != q.device:
        raise ValueError(f"gpu_headroom.torch: seed is {seed.dtype} {tuple(seed.shape)} on {seed.device}, it must be torch.int64 (2,) on {q.device}")
    if dropout_p == 0:
        raise ValueError("gpu_headroom.torch: seed is given, and dropout_p is 0")
    return seed


def checked(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, sink, cu_q, cu_k, paged=False, of="attention"):
    """The operator's tensors but for pages, or an error in one sentence. `of` is the function that was called."""
    misfit = _misfit(q, k, v, attn_mask, dropout_p, scale, enable_gqa, layout, paged)
    if misfit is not None:
        error, reason = misfit
        if of == "attention_with_cache":
            reason = re.sub(r"\b([kv])\b", r"\1_cache", reason)
        raise error(f"gpu_headroom.torch.{of}: {reason}")
    return (q, k, v, *_with(q, q.shape[1 if layout == "bhld" else 2], sink, cu_q, cu_k))


def refuse(function, misspelt):
    """The error for keyword arguments that a function does not have."""
    words.refuse(function, misspelt, words.OF_TENSORS, "gpu_headroom.torch")
