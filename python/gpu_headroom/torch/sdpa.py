"""Models that call torch's scaled_dot_product_attention, unchanged."""

import collections
import contextlib
import sys
import threading
from typing import Iterator

import torch
import torch.autograd.forward_ad as _forward_ad
import torch.overrides

from .. import library as lib
from . import masks, quick
from .calls import KINDS, ORDERS
from .checks import cast, options_of, reason_why_not
from .direct import any_autocast, directly, draw_of, form_of_three, keep, run, run_directly, seed_of, settled
from .imports import when_imported
from .transforms import COMPILED, FUNCTIONALIZED, NO_FORWARD_MODE, at_trace, is_differentiated, is_differentiated_at_trace, is_functionalized

_torchs = torch.nn.functional.scaled_dot_product_attention
_naming = threading.Lock()  # guards what follows, and the name in torch.nn.functional
_replacing = []  # the innermost last
_under_torchs_name = 0  # calls that run now and look the name up


class Replacement:
    """What a replace_sdpa() saw: `served` calls, and how many were `left` to torch for which reason. Compiled code is not counted by
    its runs: `compiled` is how many calls were compiled into headroom.attention_forward."""

    def __init__(self, tf32: bool = False, even_if_chosen: bool = False) -> None:
        self.served = 0
        self.compiled = 0
        self.left: "collections.Counter[str]" = collections.Counter()
        self.tf32, self.even_if_chosen = tf32, even_if_chosen

    def explain(self) -> str:
        """One line for the calls that were served, and one for each reason why others were not, or were not seen."""
        lines = [f"served by headroom: {self.served} calls"]
        if self.compiled:
            lines.append(f"compiled: {self.compiled} calls became headroom.attention_forward; how often compiled code runs is not counted")
        lines += [f"left to torch: {count} calls: {reason}" for reason, count in self.left.most_common()]
        unseen = _imported_names()
        if unseen:
            lines.append(f"not seen: calls of {', '.join(unseen)}: a name that was imported keeps torch's function; write "
                         "torch.nn.functional.scaled_dot_product_attention there")  # fmt: skip
        elif not (self.served or self.compiled or self.left):
            lines.append("nothing called torch.nn.functional.scaled_dot_product_attention: a model of transformers needs "
                         "attn_implementation='sdpa'; code that was compiled with another name of it, or by torch.export, keeps torch's")  # fmt: skip
        return "\n".join(lines) + "\n"


_of_models = Replacement()  # calls of attn_implementation="headroom" outside every replace_sdpa


def seen_so_far() -> str:
    """What attn_implementation="headroom" served, and what it left to transformers, since the import of this package."""
    return _of_models.explain()


def count(reason):
    """Notes a call that was served (None), or left for a reason, of attn_implementation="headroom"."""
    if torch.compiler.is_compiling():
        _note_compiled(reason)
        return
    seen = _replacing[-1] if _replacing else _of_models
    if reason is None:
        seen.served += 1
    else:
        seen.left[reason] += 1


def _imported_names():
    """Names of other modules that hold torch's function itself: replacing the name in torch.nn.functional does not reach them."""
    found = []
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("torch", "gpu_headroom"):
            continue
        held = getattr(module, "__dict__", None)
        found += [f"{name}.{key}" for key, value in list(held.items()) if value is _torchs] if isinstance(held, dict) else []
    return sorted(found)


_flash_is_on, _efficient_is_on, _cudnn_is_on = (  # C's own where torch has it by this name: a call each less
    getattr(torch._C, f"_get_{name}_sdp_enabled", getattr(torch.backends.cuda, f"{name}_sdp_enabled")) for name in ("flash", "mem_efficient", "cudnn")
)


def _on():
    """Which of torch's fused kernels may run: flash, efficient, cuDNN."""
    return _flash_is_on(), _efficient_is_on(), _cudnn_is_on()


def _chosen(but_fused, on):
    """The sentence for a choice that the user made among torch's kernels, by sdpa_kernel or a switch; None where several fused ones may run,
    and with `but_fused` where one may. `on`: what _on() says."""
    if sum(on) > (0 if but_fused else 1):
        return None
    fused = [name for name, may in zip(("flash", "efficient", "cuDNN"), on) if may]
    if fused:
        return f"torch's {fused[0]} attention was chosen (sdpa_kernel), and no other fused one"
    math = torch.backends.cuda.math_sdp_enabled()
    return "torch's math attention was chosen (sdpa_kernel)" if math else "none of torch's kernels may run (sdpa_kernel)"


def _settings():
    """(tf32, what _chosen says, what _on says) of the innermost replacement; tf32 False without one, in code that kept our function."""
    inner, on = _replacing[-1] if _replacing else None, _on()
    return (False, _chosen(False, on), on) if inner is None else (inner.tf32, _chosen(inner.even_if_chosen, on), on)


_settings_at_trace = at_trace(lambda: _settings())


@at_trace
def _note_compiled(reason):
    seen = _replacing[-1] if _replacing else _of_models
    if reason is None:
        seen.compiled += 1
    else:
        seen.left[reason + " (in compiled code)"] += 1
    return 0


def _foreign(t):
    """Whether a tensor's class has a say in functions of torch: it compares their names."""
    if type(t) in (torch.Tensor, torch.nn.Parameter):
        return False
    of = type(t).__torch_function__
    return of is not torch._C._disabled_torch_function_impl and getattr(of, "__func__", None) is not torch.Tensor.__torch_function__.__func__


@contextlib.contextmanager
def _torchs_name():
    """Within it the name in torch.nn.functional is torch's own function, for tensors that compare what they are called by with it."""
    global _under_torchs_name
    with _naming:
        _under_torchs_name += 1
        torch.nn.functional.scaled_dot_product_attention = _torchs
    try:
        yield
    finally:
        with _naming:
            _under_torchs_name -= 1
            _set_name()


def _set_name():
    ours = _replacing and not _under_torchs_name
    torch.nn.functional.scaled_dot_product_attention = _sdpa if ours else _torchs


def _hear_both_names(module):
    """torch's causal biases compare a function with the name in torch.nn.functional: an imported name's calls must find torch's there."""
    theirs = module.CausalBias.__torch_function__.__func__

    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func is not _torchs or torch.nn.functional.scaled_dot_product_attention is _torchs:
            return theirs(cls, func, types, args, kwargs)
        if torch.compiler.is_compiling():  # it takes no locks
            return cls._dispatch(*args, **(kwargs or {}))
        with _torchs_name():
            return theirs(cls, func, types, args, kwargs)

    module.CausalBias.__torch_function__ = classmethod(__torch_function__)


when_imported("torch.nn.attention.bias", _hear_both_names)


def _leave(reason, seen, query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    if seen is not None:
        seen.left[reason] += 1
    elif torch.compiler.is_compiling():
        _note_compiled(reason)
    rest = {} if enable_gqa is False else {"enable_gqa": enable_gqa}  # torch 2.4 has no such argument
    given = dict(attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **rest)
    if any(isinstance(t, torch.Tensor) and _foreign(t) for t in (query, key, value, attn_mask)):
        if not torch.compiler.is_compiling():
            with _torchs_name():
                return _torchs(query, key, value, **given)
        if hasattr(type(attn_mask), "_dispatch"):  # torch's causal biases; compiled code takes no locks
            return type(attn_mask)._dispatch(query, key, value, **given)
    return _torchs(query, key, value, **given)


def _causal_bias(attn_mask, q, k):
    """(align, reason) of torch's own causal biases; reason None: served. None for every other mask."""
    module = sys.modules.get("torch.nn.attention.bias")  # its import takes seconds: without it there is no such bias
    if module is None or not isinstance(attn_mask, module.CausalBias):
        return None
    if (attn_mask.seq_len_q, attn_mask.seq_len_kv) != (q.shape[-2], k.shape[-2]):
        return None, f"a causal bias for {attn_mask.seq_len_q} queries and {attn_mask.seq_len_kv} keys, where there are {q.shape[-2]} and {k.shape[-2]}"
    return ("top-left" if attn_mask.variant == module.CausalVariant.UPPER_LEFT else "bottom-right"), None


def _is_dense(t):
    return isinstance(t, torch.Tensor) and t.layout == torch.strided and not t.is_nested


def _in_four_dimensions(q, k, v, enable_gqa):
    """q, k and v as [batch, heads, len, head_dim], expanded where torch broadcasts; unchanged where that is not possible."""
    if not all(_is_dense(t) for t in (q, k, v)):
        return q, k, v
    if enable_gqa and q.dim() < 4 and (q.dim() == 2 or not q.shape[0] == k.shape[0] == v.shape[0]):  # torch takes what is third from behind as heads
        return q, k, v
    if q.dim() == k.dim() == v.dim() and 2 <= q.dim() < 4:
        q, k, v = (t[(None,) * (4 - t.dim())] if t.dim() == 2 else t.unsqueeze(1) for t in (q, k, v))
    if not q.dim() == k.dim() == v.dim() == 4:
        return q, k, v
    if not torch.compiler.is_compiling() and 0 in (q.numel(), k.numel()) and (q.shape[0] < 2 or q.shape[1] == 1):
        return q, k, v  # torch's result has the shape of q there, since 2.15 without keys too
    batches, heads = ([n for n in sizes if n != 1] for sizes in ((q.shape[0], k.shape[0], v.shape[0]), (k.shape[1], v.shape[1])))
    if batches and all(n == batches[0] for n in batches):  # no set: symbols of a program that is traced have no hash
        batch = batches[0]
        q, k, v = (t if t.shape[0] == batch else t.expand(batch, -1, -1, -1) for t in (q, k, v))
    if heads and heads[0] == heads[-1]:
        n = heads[0]
        k, v = (t if t.shape[1] == n else t.expand(-1, n, -1, -1) for t in (k, v))
        if q.shape[1] == 1 and not enable_gqa:
            q = q.expand(-1, n, -1, -1)
    return q, k, v


def _kernel_of_torchs(q, k, v, attn_mask, dropout_p, is_causal, scale, enable_gqa):
    """Which kernel torch would take: 0 math, 1 flash, 2 efficient; None where it cannot be asked."""
    if torch.compiler.is_compiling():
        return None
    rest = {"enable_gqa": True} if enable_gqa else {}
    try:
        return torch._fused_sdp_choice(q, k, v, attn_mask=attn_mask, dropout_p=dropout_p, is_causal=is_causal, scale=scale, **rest)
    except RuntimeError:  # inside torch.vmap, or of a subclass of tensors
        return None


def _order_as_torchs(q, kernel):
    """In which order the dimensions of torch's own result lie in memory: kernels of torch differ in it."""
    if kernel == 0:
        return 1
    if q.device.type == "cuda" and (kernel == 2 or (kernel == 1 and any(n > 1 and s == 0 for n, s in zip(q.shape, q.stride())))):
        return 0  # efficient: [batch, len, heads, head_dim], and so flash where q is expanded; else flash's is like q
    if any(n > 1 and s == 0 for n, s in zip(q.shape, q.stride())) or q.stride(3) != 1:
        return 1
    strides, order = q.stride(), [0, 1, 2]
    for a, b in ((0, 1), (1, 2), (0, 1)):  # sorted() has no symbols of compiled code
        if strides[order[a]] < strides[order[b]]:
            order[a], order[b] = order[b], order[a]
    return ORDERS.index(tuple(order))


_known = {}  # what was asked before, settled


def _sdpa(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, *, scale=None, enable_gqa=False):
    compiling = torch.compiler.is_compiling()
    seen = None if compiling or not _replacing else _replacing[-1]
    given = query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa
    tf32, chosen, on = _settings_at_trace() if compiling else _settings()
    if compiling and is_differentiated_at_trace():
        chosen = COMPILED
    elif not compiling and _forward_ad._current_level >= 0:
        chosen = NO_FORWARD_MODE
    if chosen is not None:
        return _leave(chosen, seen, *given)
    asked = "scaled_dot_product_attention", attn_mask, dropout_p, is_causal, scale, enable_gqa, tf32, on
    if not compiling and quick.attend is not None:
        o = quick.attend(query, key, value, False, asked)
        if o is not None:
            if seen is not None:
                seen.served += 1
            return o
    if not compiling and torch.overrides.has_torch_function((query, key, value)):
        with torch._C.DisableTorchFunctionSubclass():  # it is not asked about is_nested
            foreign = [type(t).__name__ for t in (query, key, value) if isinstance(t, torch.Tensor) and _foreign(t) and not t.is_nested]
        if foreign:
            return _leave(f"{foreign[0]} is a tensor subclass or a mode with its own __torch_function__", seen, *given)
        if torch._C._len_torch_function_stack() > 0:  # what listens to functions hears this one, and then it is called without the listener
            return torch.overrides.handle_torch_function(
                _sdpa, (query, key, value), query, key, value, attn_mask, dropout_p, is_causal, scale=scale, enable_gqa=enable_gqa
            )  # fmt: skip
    return _attend(given, asked, seen)


def _attend(given, asked, seen):
    """A call that C++ does not know: it is known here, or it is read and served, or left to torch."""
    query, key, value, attn_mask, dropout_p, is_causal, _, enable_gqa = given
    if type(is_causal) is not bool or type(enable_gqa) is not bool:
        return _leave("is_causal or enable_gqa is neither True nor False, which torch refuses", seen, *given)
    kept_as = found = None
    if attn_mask is None and type(dropout_p) in (float, int) and directly(query, key, value) and not any_autocast():
        try:
            threads = torch.get_num_threads() if query.is_cpu else None
            kept_as = form_of_three(query, key, value), asked, torch.are_deterministic_algorithms_enabled(), threads
            found = _known.get(kept_as)
        except (TypeError, RuntimeError):  # something in it is a list, say, or a tensor has no strides
            kept_as = None
    if found is not None:
        o = run_directly(found, False, query, key, value, random=seed_of(query, dropout_p))
        if seen is not None:
            seen.served += 1
        return o
    reason, tensors, options = _read(given, asked)
    if reason is None:
        reason, o = _served(tensors, options)
    if reason is not None:
        return _leave(reason, seen, *given)
    if seen is not None:
        seen.served += 1
    elif torch.compiler.is_compiling():
        _note_compiled(None)
    if kept_as is not None and tensors[0] is query and tensors[1] is key and tensors[2] is value and query.device.type in KINDS:
        ready = settled(tensors, options)
        keep(_known, kept_as, ready)
        quick.keep(ready, query, key, value, asked, draw_of(query.device) if dropout_p else None)
    dims = query.dim()
    return o if dims == 4 else o[(0,) * (4 - dims)] if dims == 2 else o.squeeze(1)


def _read(given, asked):
    """(reason, the operator's tensors, its options) of what torch's function is asked: a reason, or the others."""
    query, key, value, mask, dropout_p, is_causal, scale, enable_gqa = given
    tf32, align = asked[6], "top-left"
    q, k, v = cast([query, key, value]) if all(isinstance(t, torch.Tensor) for t in (query, key, value)) else (query, key, value)
    if mask is not None:
        bias = _causal_bias(mask, q, k) if not is_causal else None
        if bias is not None and bias[1] is not None:
            return bias[1], None, None
        if bias is not None:
            align, is_causal, mask = bias[0], True, None
    if not torch.compiler.is_compiling() and is_functionalized() and is_differentiated():
        return FUNCTIONALIZED, None, None
    as_given = q, k, v
    q, k, v = _in_four_dimensions(q, k, v, enable_gqa)
    alone = _is_dense(k) and k.dim() == 4 and k.shape[1] == 1  # one key head for all queries: torch broadcasts it
    readable = isinstance(mask, torch.Tensor) and not is_causal
    reason = reason_why_not(q, k, v, None if readable else mask, dropout_p, scale, enable_gqa or alone, "bhld")
    said = _read_mask(mask, query, q, k) if readable and reason is None else None
    if reason is not None or isinstance(said, str):
        return reason or said, None, None
    order = _order_as_torchs(q, _kernel_of_torchs(*as_given, mask, dropout_p, is_causal and mask is None, scale, enable_gqa))
    window = cu_q = cu_k = None
    if said is not None:
        is_causal, window, align, cu_q, cu_k = said.is_causal, said.window, said.align, said.cu_q, said.cu_k
        if (said.first, said.end) != (0, k.shape[2]):
            k, v = k[:, :, said.first : said.end], v[:, :, said.first : said.end]
    options = options_of(is_causal, scale, window, align, "bhld", None, torch.are_deterministic_algorithms_enabled(), tf32, order=order,
                         dropout=dropout_p)  # fmt: skip
    return None, (q, k, v, None, cu_q, cu_k, None, seed_of(q, dropout_p), None), options


def _read_mask(mask, query, q, k):
    """What the mask of `query` says for q and k, which have four dimensions: a masks.Seen, or the reason why the call is torch's."""
    dims = query.dim()
    if not 2 <= mask.dim() <= dims or mask.dtype not in (torch.bool, torch.float32, query.dtype, q.dtype):
        return f"attn_mask is {mask.dtype} of {mask.dim()} dimensions, which torch refuses"
    return masks.read(mask.unsqueeze(1) if dims == 3 and mask.dim() == 3 else mask, q, k)


def _served(tensors, options):
    """(reason, None) or (None, o)."""
    try:
        return None, run(tensors, options)
    except lib.Error as refused:  # no kernel for this device, no driver, no GPU kernels beside the library
        if refused.status != "unsupported":
            raise
        return str(refused), None


_sdpa.__name__ = _sdpa.__qualname__ = _torchs.__name__  # as it is called in what Python says of wrong arguments
scaled_dot_product_attention = _sdpa  # where pickle looks for it by that name
_register_of_scripts = getattr(getattr(torch.jit, "_builtins", None), "_register_builtin", None)
if _register_of_scripts is not None:  # a script that is compiled within has torch's own: it cannot read ours
    _register_of_scripts(_sdpa, "aten::scaled_dot_product_attention")


@contextlib.contextmanager
def replace_sdpa(*, tf32: bool = False, even_if_chosen: bool = False) -> Iterator[Replacement]:
    """Within it torch.nn.functional.scaled_dot_product_attention is headroom's, where headroom serves the call, in every thread.

    Yields a Replacement, whose explain() says which calls were left to torch, and why. Results have torch's strides.
    tf32: float32 on CUDA may round products to tf32; else it is exact, as torch's fused kernels are, whatever allow_tf32 says.
    A choice among torch's kernels is left to torch: sdpa_kernel(MATH), or a single fused one. even_if_chosen: the fused one is replaced, too.
    """
    for name, value in (("tf32", tf32), ("even_if_chosen", even_if_chosen)):
        if not isinstance(value, bool):
            raise TypeError(f"gpu_headroom.torch.replace_sdpa: {name} is a {type(value).__name__}: True or False")
    seen = Replacement(tf32, even_if_chosen)
    with _naming:
        _replacing.append(seen)
        _set_name()
    try:
        yield seen
    finally:
        with _naming:
            _replacing.remove(seen)
            _set_name()
