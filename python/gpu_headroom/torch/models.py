"""attn_implementation="headroom" of transformers: its masks become windows, documents and lengths, and its layers call our attention."""

import functools
import sys
import weakref

import torch

from .. import library as lib
from . import masks, paged
from .checks import options_of, reason_why_not
from .direct import run, seed_of
from .imports import when_imported
from .model_masks import Mask, mask
from .sdpa import count

NAME = "headroom"


def _own_attention(module, query, key, value, attention_mask, softcap, s_aux, arguments):
    """transformers' own attention: sdpa, or the model's eager one where sdpa does not know what is asked: caps, sinks, the probabilities."""
    if isinstance(attention_mask, Mask):
        attention_mask = attention_mask.as_tensor()
    eager = getattr(sys.modules[type(module).__module__], "eager_attention_forward", None)
    if softcap is None and s_aux is None and (eager is None or not arguments.get("output_attentions")):
        own = sys.modules["transformers.integrations.sdpa_attention"].sdpa_attention_forward
        return own(module, query, key, value, attention_mask, **arguments)
    if eager is None:
        raise ValueError(f"attn_implementation='headroom': {type(module).__name__} has no attention of its own to leave this call to")
    if attention_mask is None and query.shape[2] > 1 and arguments.get("is_causal", getattr(module, "is_causal", False)):
        attention_mask = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril(key.shape[2] - query.shape[2])[None, None]
    if attention_mask is not None and attention_mask.dtype == torch.bool:
        zero = torch.zeros((), dtype=query.dtype, device=query.device)
        attention_mask = torch.where(attention_mask, zero, torch.finfo(query.dtype).min)
    asked = {name: value for name, value in (("softcap", softcap), ("s_aux", s_aux)) if value is not None}
    return eager(module, query, key, value, attention_mask, **asked, **arguments)


_ordered: "list" = [None, None, None]  # the last mask that got its order, its version, and what became of it: a model's layers share it


def _with_order(module, query, key, mask):
    """GPT-2 before transformers 4.53 gives an attention whose name it does not know its padding alone, [batch, 1, 1, keys], and leaves the order
    of tokens to eager's: a buffer of the module. Here it is put into the mask."""
    if not isinstance(mask, torch.Tensor) or mask.dim() != 4 or mask.shape[2] != 1 or query.shape[2] == 1 or "transformers.masking_utils" in sys.modules:
        return mask
    order = getattr(module, "bias", None)
    if not isinstance(order, torch.Tensor) or order.dtype != torch.bool or order.dim() != 4 or getattr(module, "is_cross_attention", False):
        return mask
    before, version, made = _ordered
    if before is None or before() is not mask or version != mask._version or made.shape[2:] != (query.shape[2], key.shape[2]):
        seen = order[..., key.shape[2] - query.shape[2] : key.shape[2], : key.shape[2]]
        made = torch.where(seen, mask, torch.finfo(mask.dtype).min)
        _ordered[:] = weakref.ref(mask), mask._version, made
    return made


def _of_chosen_keys(module, query, key, attention_mask, named):
    """The mask of layers whose rows choose their keys (DeepSeek V3.2, MiniMax M3): only "eager" and "sdpa" get the choice as a mask, other names
    get the keys' or blocks' numbers beside a mask that does not know of them."""
    chosen, blocks = named.pop("indices", None), named.pop("block_indices", None)
    if chosen is None and blocks is None:
        return attention_mask
    if attention_mask is None and named.get("cu_seq_lens_q") is not None:
        raise ValueError(f"attn_implementation='headroom': {type(module).__name__} chooses keys for each row, which is not served for packed sequences")
    seen = attention_mask.as_tensor() if isinstance(attention_mask, Mask) else attention_mask
    if seen is None:
        seen = torch.ones(query.shape[2], key.shape[2], dtype=torch.bool, device=query.device).tril(key.shape[2] - query.shape[2])[None, None]
    if seen.dtype != torch.bool:
        seen = seen == 0
    if blocks is not None:
        return module.indexer.build_block_mask(blocks, seen, key.shape[2], query.dtype, query.device, None) == 0
    among = torch.zeros(query.shape[0], query.shape[2], key.shape[2], dtype=torch.bool, device=query.device)
    return seen & among.scatter(-1, chosen.long(), True)[:, None]


def _for_these_keys(module, query, key, mask):
    """The mask for as many keys as there are."""
    if isinstance(mask, Mask) and mask.shape[-1] == 1 < key.shape[2]:  # generate(prefill_chunk_size=…) cuts an encoder's padding
        mask = mask.as_tensor().expand(-1, -1, -1, key.shape[2])  # as eager attention reads it
    if isinstance(mask, Mask) and mask.shape[-1] < key.shape[2]:
        raise ValueError(f"attn_implementation='headroom': {type(module).__name__} has {key.shape[2]} keys and a mask of {mask.shape[-1]}: it "
                         "adds keys that only a mask tensor can describe: use attn_implementation='eager'")  # fmt: skip
    return _with_order(module, query, key, mask)


def _seen_without_mask(query, causal, sliding_window, named):
    """What rows see by the layer's own arguments: their order, a window, and lists of packed sequences."""
    cu_q = cu_k = window = None
    packed = named.get("cu_seq_lens_q")
    if packed is not None and query.shape[0] == 1:
        lists = packed, paged.list_of(named.get("cu_seq_lens_k", packed), sliding_window is not None)
        cu_q, cu_k = (torch.as_tensor(ends, dtype=torch.int32, device=query.device)[None] for ends in lists)
    causal = bool(causal) and (query.shape[2] > 1 or packed is not None)
    if causal and sliding_window is not None:
        window, causal = (sliding_window, 0), False
    return masks.Seen(causal, window, "bottom-right", 0, None, cu_q, cu_k)


def _seen_by(mask, query, key, causal, sliding_window, named):
    """What rows see, and why our attention cannot take it, or None."""
    if mask is None:
        return _seen_without_mask(query, causal, sliding_window, named), None
    if isinstance(mask, Mask):
        return masks.Seen(mask.causal, mask.window, mask.align, 0, mask.keys, mask.cu_q, mask.cu_k), mask.reason
    found = "no mask that is known"
    if isinstance(mask, torch.Tensor) and query.dim() == key.dim() == 4:
        found = masks.read(mask[..., : key.shape[2]], query, key, padding=True)  # transformers 4.48's has a column too many
    if isinstance(found, masks.Seen):
        return found, None
    return masks.Seen(causal, None, "bottom-right", 0, None), f"the mask is a tensor that the model or its caller made: {found}"


def _compute(query, key, value, seen, dropped, scaling, softcap, s_aux):
    """(output, None) of our attention, or (None, why it does not serve this call)."""
    heads_agree = key.dim() == 4 and key.shape[1] and query.shape[1] % key.shape[1] == 0
    reason = reason_why_not(query, key, value, None, dropped, scaling, heads_agree, "bhld")
    if reason is not None:
        return None, reason
    try:
        options = options_of(seen.is_causal, scaling, seen.window, seen.align, "bhld", None, torch.are_deterministic_algorithms_enabled(), False,
                             0.0 if softcap is None else float(softcap), dropout=dropped)  # fmt: skip
        sink = None if s_aux is None else s_aux.reshape(-1).float()
        return run((query, key, value, sink, seen.cu_q, seen.cu_k, None, seed_of(query, dropped), None), options), None
    except lib.Error as refused:  # no kernel for this device, no driver, no GPU kernels beside the library
        if refused.status != "unsupported":
            raise
        return None, str(refused)


def attend(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None, is_causal=None, s_aux=None,
    position_bias=None, **kwargs,
):  # fmt: skip
    """transformers' attention interface: query [batch, heads, len, head_dim]; the result is [batch, len, heads, head_dim]."""
    attention_mask = _for_these_keys(module, query, key, _of_chosen_keys(module, query, key, attention_mask, kwargs))
    if isinstance(attention_mask, Mask) and attention_mask.plain:
        attention_mask, is_causal = None, True
    if is_causal is None and not hasattr(module, "is_causal"):  # without a mask eager attention of such a module sees every key, sdpa those before
        is_causal = False
    causal = module.is_causal if is_causal is None else is_causal
    seen, reason = _seen_by(attention_mask, query, key, causal, sliding_window, kwargs)
    if reason is None and position_bias is not None:
        reason = "a bias of positions that is added to the scores"
    if reason is None and kwargs.get("output_attentions"):
        reason = "output_attentions: the matrix of probabilities is asked for"
    if reason is None:
        k, v = key, value
        if seen.first or seen.end is not None:
            k, v = k[:, :, seen.first : seen.end], v[:, :, seen.first : seen.end]
        output, reason = _compute(query, k, v, seen, dropout if module.training or dropout else 0.0, scaling, softcap, s_aux)
        if reason is None:
            count(None)
            return output.transpose(1, 2).contiguous(), None
    if attention_mask is None and seen.cu_q is not None:
        raise ValueError(f"attn_implementation='headroom': {type(module).__name__}: {reason}; packed sequences that come without a mask cannot be left to "
                         "transformers' own attention, which does not know them")  # fmt: skip
    count(reason)
    optional = {"is_causal": is_causal, "sliding_window": sliding_window, "position_bias": position_bias}
    arguments = {"dropout": dropout, "scaling": scaling, **kwargs, **{name: value for name, value in optional.items() if value is not None}}
    return _own_attention(module, query, key, value, attention_mask, softcap, s_aux, arguments)


def _refuse_own_classes(base):
    """Some models look the name up among attention classes of their own, where it is not: they are refused in a sentence."""
    for name in ("get_correct_attn_implementation", "_autoset_attn_implementation"):  # the second before transformers 4.53
        theirs = base.__dict__.get(name)
        if theirs is not None:
            setattr(base, name, _checking(theirs))
            return


def _checking(theirs):
    function = getattr(theirs, "__func__", theirs)

    @functools.wraps(function)
    def checked(model, *arguments, **named):
        cls = model if isinstance(model, type) else type(model)
        asked = next(iter((*arguments, *named.values())), None)  # the name, or a config that has it
        if getattr(asked, "_attn_implementation", asked) in (NAME, paged.NAME):
            for classes in vars(sys.modules[cls.__module__]).values():
                if isinstance(classes, dict) and "eager" in classes and NAME not in classes:
                    there = "attn_implementation='sdpa' inside gpu_headroom.torch.replace_sdpa()" if "sdpa" in classes else " or ".join(map(repr, classes))
                    raise ValueError(f"attn_implementation='headroom': {cls.__name__} chooses among attention classes of its own and does not ask "
                                     f"transformers' attention interface: use {there}")  # fmt: skip
        return function(model, *arguments, **named)

    return classmethod(checked) if isinstance(theirs, classmethod) else checked


def _register_attention(module):
    _refuse_own_classes(module.PreTrainedModel)
    functions = module.ALL_ATTENTION_FUNCTIONS
    for name, function in ((NAME, attend), (paged.NAME, paged.attend_paged)):
        if hasattr(functions, "register"):
            functions.register(name, function)
        else:  # transformers 4.48: a dict
            functions[name] = function


def _register_mask(module):
    module.ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, mask)


def register():
    """Make attn_implementation="headroom" known to transformers, now or when it is imported."""
    when_imported("transformers.modeling_utils", _register_attention)
    when_imported("transformers.masking_utils", _register_mask)
    paged.register()
