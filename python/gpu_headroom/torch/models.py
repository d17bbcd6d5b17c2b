"""attn_implementation="headroom" of transformers: its masks become windows, documents and lengths, and its layers call our attention.

A mask is known by the function of transformers that describes it. What it says more than that is left to transformers' own attention.
"""

import copy
import functools
import sys
import weakref

import torch

from .. import library as lib
from . import masks, paged
from .checks import options_of, reason_why_not
from .direct import run, seed_of
from .imports import when_imported
from .sdpa import count

NAME = "headroom"
_READ_BY_THE_MODEL = "the model adds its mask itself and does not ask transformers' attention interface"
_OPEN = 1 << 31  # keys on a side of a window that has no end there
_ADD_KEYS = frozenset(("deepseek_v4",))  # models that put compressed keys behind the others, and what is seen of them behind a mask that is a tensor


class Mask:
    """What rows see, without a matrix of it.

    causal, window, align: of our attention. cu_q, cu_k: documents, or None. keys: how many keys there are, from the first; None: all.
    plain: causal, and the last row sees every key. reason: why there is only a matrix, which as_tensor() makes of transformers' own
    arguments; else None. A model that does not hand its mask to the attention interface gets eager attention's tensor of it.
    """

    ndim = 4

    def __init__(self, arguments, shape, causal=None, window=None, cu_q=None, cu_k=None, keys=None, reason=None, plain=False, align="bottom-right"):
        self.arguments, self.shape, self.causal, self.window, self.keys, self.reason = arguments, shape, causal, window, keys, reason
        self.cu_q, self.cu_k, self.plain, self.align = cu_q, cu_k, plain, align
        self._tensor = self._numbers = None

    def contiguous(self):  # what generate asks of a mask over a static cache
        return self

    def to(self, *to, **named):
        """The same on another device, as accelerate asks; a mask of another type is a tensor."""
        device = named.get("device", to[0] if to else None)
        if not isinstance(device, (str, int, torch.device)) or "dtype" in named:
            return self.added().to(*to, **named)
        moved = copy.copy(self)
        moved._tensor = moved._numbers = None
        moved.cu_q, moved.cu_k = (t if t is None else t.to(device) for t in (self.cu_q, self.cu_k))
        moved.arguments = {k: v.to(device) if isinstance(v, torch.Tensor) else v for k, v in self.arguments.items()}
        if "device" in moved.arguments:
            moved.arguments["device"] = torch.device("cuda", device) if isinstance(device, int) else torch.device(device)
        return moved

    def as_tensor(self):
        """The same as a tensor of booleans, made once."""
        if self._tensor is None:
            masking = sys.modules["transformers.masking_utils"]
            self._tensor = masking.sdpa_mask(**self.arguments, allow_is_causal_skip=False, allow_is_bidirectional_skip=False)
        return self._tensor

    def added(self):
        """What eager attention adds to the scores, for a model that reads its mask itself."""
        if self._numbers is None:
            count(_READ_BY_THE_MODEL)
            seen, dtype = self.as_tensor(), self.arguments.get("dtype") or torch.float32
            self._numbers = torch.where(seen, torch.zeros((), dtype=dtype, device=seen.device), torch.finfo(dtype).min)
        return self._numbers

    def __getattr__(self, name):
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self.added(), name)

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        given = args, kwargs or {}
        joined = args[0] if func in _JOINING and args else ()
        with_booleans = any(isinstance(t, torch.Tensor) and t.dtype == torch.bool for t in joined)  # as numbers they would be 0 and 1
        args, kwargs = torch.utils._pytree.tree_map_only(cls, cls.as_tensor if with_booleans or func in _LOGICAL else cls.added, given)
        return func(*args, **kwargs)

    def __eq__(self, other):
        return NotImplemented if other is None or isinstance(other, (str, Mask)) else self.added() == other

    def __ne__(self, other):
        return NotImplemented if other is None or isinstance(other, (str, Mask)) else self.added() != other

    __hash__ = object.__hash__


_JOINING = (torch.cat, torch.concat, torch.concatenate, torch.stack)
_LOGICAL = frozenset(
    getattr(of, name) for of in (torch, torch.Tensor) for which in ("and", "or", "xor", "not") for name in (f"logical_{which}", f"bitwise_{which}")
) | {torch.Tensor.__and__, torch.Tensor.__or__, torch.Tensor.__xor__}


def _operator(name, made):
    return lambda mask, *given: getattr(made(mask), name)(*given)


_ARITHMETIC = "getitem add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod pow rpow matmul rmatmul neg pos abs lt gt le ge"
for _names, _made in ((_ARITHMETIC, Mask.added), ("invert and rand or ror xor rxor", Mask.as_tensor)):
    for _name in _names.split():
        setattr(Mask, f"__{_name}__", _operator(f"__{_name}__", _made))


class _Said:
    """What a mask's function says: keys before and after a row's own (None: all of them), and which document each position is in."""

    def __init__(self):
        self.before = self.after = None
        self.documents = []  # (how, tensor or (size, padding on the left, positions or None for those in the sequence))
        self.positions = None  # positions that the function being read counts by, if they begin anew in each document
        self.reason = None


def _read(function, said):
    """Adds what `function` says; only functions of transformers itself are known."""
    masking = sys.modules["transformers.masking_utils"]
    if function is masking.causal_mask_function:
        said.after = 0
        return
    if function is getattr(masking, "bidirectional_mask_function", None):
        return
    name = getattr(function, "__qualname__", "?")
    if getattr(function, "__module__", "") != masking.__name__ or getattr(function, "__closure__", None) is None:
        said.reason = f"the mask is described by {name}, which is not transformers' own"
        return
    held = {n: cell.cell_contents for n, cell in zip(function.__code__.co_freevars, function.__closure__)}
    maker = name.partition(".")[0]
    if maker == "and_masks":
        for one in held["mask_functions"]:
            _read(one, said)
    elif maker == "sliding_window_overlay":
        _narrow(said, held["sliding_window"], None)
    elif maker == "sliding_window_bidirectional_overlay":
        _narrow(said, held["sliding_window"] + 1, held["sliding_window"])
    elif maker == "packed_sequence_mask_function":
        said.documents.append(("packed", held["packed_sequence_mask"]))
    elif maker == "chunked_overlay":
        said.documents.append(("chunks", (held["chunk_size"], held.get("left_padding"), said.positions)))
    elif maker == "remap_positions_for_packed_sequence":  # within a document they grow by one, as those in the sequence do
        outer, said.positions = said.positions, held["position_ids"]
        _read(held["mask_function"], said)
        said.positions = outer
    else:
        said.reason = f"the mask has a part that is no window, padding or documents: transformers' {maker}"


def _narrow(said, before, after):
    said.before = before if said.before is None else min(said.before, before)
    if after is not None:
        said.after = after if said.after is None else min(said.after, after)


def _holes(padding):
    """Whether a row's tokens do not follow one another. Waits for the device, once for each forward pass, as transformers' own masks do."""
    begins = padding[:, 1:] & ~padding[:, :-1]
    return bool((begins.sum(1) + padding[:, 0] > 1).any())


def _document_numbers(said, batch, kv_offset, keys, device):
    """[batch, keys] numbers that grow where a document begins; with the number of documents."""
    numbers = None
    for how, what in said.documents:
        if how == "packed":
            one = what.expand(batch, -1)
        else:
            size, padded, positions = what
            at = (torch.arange(keys, device=device) + kv_offset)[None] if positions is None else positions.to(device)
            at = (at if padded is None else at - padded[:, None].to(device)).expand(batch, -1)
            one = torch.div(at, size, rounding_mode="floor")
        change = torch.zeros(batch, keys, dtype=torch.int64, device=device)
        change[:, 1:] = one[:, 1:] != one[:, :-1]
        numbers = change if numbers is None else numbers | change
    numbers = numbers.cumsum(1)
    return numbers, int(numbers[:, -1].max()) + 1


def _documents(said, arguments):
    """(cu_q, cu_k, align) of documents and padding."""
    batch, length, keys, q_offset, kv_offset, padding, device = (
        arguments[name] for name in ("batch_size", "q_length", "kv_length", "q_offset", "kv_offset", "attention_mask", "device")
    )
    if padding is None:
        begin, end = torch.zeros(batch, dtype=torch.int64, device=device), None
    else:
        padding = padding.to(device)
        begin, end = padding.int().argmax(1), padding.int().argmax(1) + padding.sum(1)
    last = torch.zeros(batch, dtype=torch.int64, device=device) + q_offset + length
    if said.after is None and said.before is None:  # every row sees every key
        of_k = (torch.full_like(begin, keys) + kv_offset if end is None else end) - kv_offset
        of_q = torch.full_like(begin, length)
    else:
        end = last if end is None else torch.minimum(end, last)
        of_k, of_q = end - kv_offset, (end - q_offset).clamp(0, length)
    of_k, first = of_k.clamp(0, keys), (begin - kv_offset).clamp(0, keys)
    zero = torch.zeros_like(begin)
    align = "bottom-right"
    ordered = said.after is not None or said.before is not None
    at_once = padding is not None and ordered and not said.documents and isinstance(q_offset, int) and q_offset == kv_offset == 0
    if at_once and bool((of_q < length).any()):  # rows of padding behind a sequence see what is before them of it
        align, first = "top-left", torch.minimum(first, of_k)
        cu_q, cu_k = torch.stack([zero, zero, first, zero + length], 1), torch.stack([zero, first, first, of_k], 1)
    elif not said.documents:
        cu_q, cu_k = torch.stack([zero, zero, of_q], 1), torch.stack([zero, torch.minimum(first, of_k), of_k], 1)
    else:
        numbers, documents = _document_numbers(said, batch, kv_offset, keys, device)
        borders = torch.searchsorted(numbers.contiguous(), torch.arange(documents + 1, device=device).expand(batch, -1).contiguous())
        cu_q = torch.cat([zero[:, None], torch.minimum((borders + kv_offset - q_offset).clamp(min=0), of_q[:, None])], 1)
        cu_k = torch.cat([zero[:, None], torch.minimum(torch.maximum(borders, first[:, None]), of_k[:, None])], 1)
    return cu_q.int(), cu_k.int(), align


def _has_no_numbers(device):
    """Whether tensors that are made there now have shapes alone."""
    return torch.device(device).type == "meta" or masks.is_faked()


def mask(
    batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, local_size=None,
    allow_is_causal_skip=True, allow_is_bidirectional_skip=False, device=None, cache_position=None, **rest,
):  # fmt: skip
    """transformers' mask interface: None where every row sees every key, else a Mask."""
    if isinstance(attention_mask, Mask):  # made before, by generate
        return attention_mask
    masking = sys.modules["transformers.masking_utils"]
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length}
    batch_size, q_length, kv_length = (int(n) if isinstance(n, torch.Tensor) and n.dim() == 0 else n for n in sizes.values())  # torch.jit.trace's
    if q_length is not None and not isinstance(q_length, int) and hasattr(q_length, "shape"):
        cache_position, q_length = q_length, None  # transformers before 5 gives the positions themselves
    arguments = {}
    if cache_position is not None:
        q_length, q_offset = cache_position.shape[0], cache_position[0]
        device = cache_position.device
        arguments = {"cache_position": cache_position}
    device = device if device is not None else attention_mask.device if attention_mask is not None else "cpu"
    mask_function = masking.causal_mask_function if mask_function is None else mask_function
    known = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length, "q_offset": q_offset, "kv_offset": kv_offset,
             "mask_function": mask_function, "attention_mask": attention_mask, "device": device}  # fmt: skip
    made_from = {**known, **({} if cache_position is not None else sizes), **rest, "local_size": local_size}
    for name, value in made_from.items():  # layers read it later: a static cache adds to its own length in place, and padding grows by each token
        if name == "attention_mask" and value is not None and isinstance(kv_length, int) and isinstance(kv_offset, int):
            made_from[name] = torch.nn.functional.pad(value, (0, max(0, kv_length + kv_offset - value.shape[-1])))
        elif name in ("q_offset", "kv_offset") and isinstance(value, torch.Tensor):
            made_from[name] = value.clone()
    if arguments:
        made_from = {k: v for k, v in made_from.items() if k not in ("q_length", "q_offset", "device")} | arguments
    said = _Said()
    compiling = torch.compiler.is_compiling()
    if compiling and mask_function is not masking.causal_mask_function and mask_function is not getattr(masking, "bidirectional_mask_function", None):
        said.reason = "a mask with a window or documents cannot be read while it is compiled: compile the layers, not the model's forward"
    elif attention_mask is not None and not compiling and masks.is_recorded():
        said.reason = "padding cannot be read while it is recorded (torch.jit.trace): another may come when the record runs"
    elif compiling and attention_mask is not None:
        said.reason = "padding cannot be read while it is compiled: leave attention_mask out, or compile the layers"
    elif not compiling and attention_mask is not None and _has_no_numbers(attention_mask.device):
        said.reason = "padding has no numbers here (FakeTensorMode, or a meta tensor)"
    else:
        _read(mask_function, said)
        if said.reason is None and said.documents and not compiling and _has_no_numbers(device):
            said.reason = "documents have no numbers here (FakeTensorMode, or meta tensors)"
    offsets = [n for n in (q_offset, kv_offset) if isinstance(n, torch.Tensor)]
    if said.reason is None and any(how == "packed" for how, _ in said.documents) and (offsets or q_offset or kv_offset or q_length != kv_length):
        said.reason = "packed documents over a cache"
    padding = None
    if attention_mask is not None and said.reason is None:
        padding = attention_mask.bool()
        if not offsets and bool(padding[:, kv_offset : kv_offset + kv_length].all()) and padding.shape[1] >= kv_offset + kv_length:
            padding = None
        elif _holes(padding):
            said.reason = "padding between the tokens of a sequence"
    known["attention_mask"] = padding
    ends = None if offsets else (q_offset + q_length, kv_offset + kv_length)
    plain = said.before is None and padding is None and not said.documents and said.reason is None
    if plain and said.after is None and allow_is_bidirectional_skip:
        return None
    made = functools.partial(Mask, made_from, (batch_size, 1, q_length, kv_length))
    if getattr(rest.get("config"), "model_type", None) in _ADD_KEYS:
        return made(reason="the model adds keys").added()
    if plain and said.after == 0 and allow_is_causal_skip and ends is not None and ends[0] == ends[1] and (q_length == 1 or q_length == kv_length):
        return made(causal=True, plain=True)
    if said.reason is None and (said.before is not None or said.after) and said.after != 0 and (ends is None or ends[0] != ends[1]):
        said.reason = "a window to both sides over a cache"
    if said.reason is None and said.after == 0 and ends is not None and ends[0] > ends[1]:
        said.reason = "rows behind the last key"
    if said.reason is not None:
        left = made(reason=said.reason)
        if not compiling:  # every layer asks for it, and compiled ones cannot make it again without a guard for each length
            left.as_tensor()
        return left
    window = None
    if said.before is not None or said.after:
        window = (_OPEN if said.before is None else said.before, _OPEN if said.after is None else said.after)
    causal = window is None and said.after == 0
    cu_q = cu_k = keys = None
    align = "bottom-right"
    if padding is not None or said.documents or (ends is None and said.after == 0):
        cu_q, cu_k, align = _documents(said, known)
    elif said.after == 0 and ends[0] < ends[1]:
        keys = ends[0] - kv_offset
    return made(causal, window, cu_q, cu_k, keys, align=align)


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


def attend(
    module, query, key, value, attention_mask, dropout=0.0, scaling=None, sliding_window=None, softcap=None, is_causal=None, s_aux=None,
    position_bias=None, **kwargs,
):  # fmt: skip
    """transformers' attention interface: query [batch, heads, len, head_dim]; the result is [batch, len, heads, head_dim]."""
    attention_mask = _of_chosen_keys(module, query, key, attention_mask, kwargs)
    if isinstance(attention_mask, Mask) and attention_mask.shape[-1] == 1 < key.shape[2]:  # generate(prefill_chunk_size=…) cuts an encoder's padding
        attention_mask = attention_mask.as_tensor().expand(-1, -1, -1, key.shape[2])  # as eager attention reads it
    if isinstance(attention_mask, Mask) and attention_mask.shape[-1] < key.shape[2]:
        raise ValueError(f"attn_implementation='headroom': {type(module).__name__} has {key.shape[2]} keys and a mask of {attention_mask.shape[-1]}: it "
                         "adds keys that only a mask tensor can describe: use attn_implementation='eager'")  # fmt: skip
    if isinstance(attention_mask, Mask) and attention_mask.plain:
        attention_mask, is_causal = None, True
    attention_mask = _with_order(module, query, key, attention_mask)
    if is_causal is None and not hasattr(module, "is_causal"):  # without a mask eager attention of such a module sees every key, sdpa those before
        is_causal = False
    given = is_causal
    causal = module.is_causal if is_causal is None else is_causal
    window = cu_q = cu_k = reason = None
    align = "bottom-right"
    q, k, v = query, key, value
    if isinstance(attention_mask, Mask):
        said = attention_mask
        causal, window, align, cu_q, cu_k, reason = said.causal, said.window, said.align, said.cu_q, said.cu_k, said.reason
        if said.keys is not None:
            k, v = k[:, :, : said.keys], v[:, :, : said.keys]
    elif attention_mask is not None:
        found = "no mask that is known"
        if isinstance(attention_mask, torch.Tensor) and q.dim() == k.dim() == 4:
            found = masks.read(attention_mask[..., : k.shape[2]], q, k, padding=True)  # transformers 4.48's has a column too many
        if isinstance(found, masks.Seen):
            causal, window, align, cu_q, cu_k = found.is_causal, found.window, found.align, found.cu_q, found.cu_k
            k, v = k[:, :, found.first : found.end], v[:, :, found.first : found.end]
        else:
            reason = f"the mask is a tensor that the model or its caller made: {found}"
    else:
        packed = kwargs.get("cu_seq_lens_q")
        if packed is not None and q.shape[0] == 1:
            lists = packed, paged.list_of(kwargs.get("cu_seq_lens_k", packed), sliding_window is not None)
            cu_q, cu_k = (torch.as_tensor(ends, dtype=torch.int32, device=q.device)[None] for ends in lists)
        causal = bool(causal) and (q.shape[2] > 1 or packed is not None)
        if causal and sliding_window is not None:
            window, causal = (sliding_window, 0), False
    if reason is None and position_bias is not None:
        reason = "a bias of positions that is added to the scores"
    if reason is None and kwargs.get("output_attentions"):
        reason = "output_attentions: the matrix of probabilities is asked for"
    dropped = dropout if module.training or dropout else 0.0
    heads_agree = k.dim() == 4 and k.shape[1] and q.shape[1] % k.shape[1] == 0
    reason = reason or reason_why_not(q, k, v, None, dropped, scaling, heads_agree, "bhld")
    if reason is None:
        try:
            options = options_of(causal, scaling, window, align, "bhld", None, torch.are_deterministic_algorithms_enabled(), False,
                                 0.0 if softcap is None else float(softcap), dropout=dropped)  # fmt: skip
            sink = None if s_aux is None else s_aux.reshape(-1).float()
            o = run((q, k, v, sink, cu_q, cu_k, None, seed_of(q, dropped), None), options)
        except lib.Error as refused:  # no kernel for this device, no driver, no GPU kernels beside the library
            if refused.status != "unsupported":
                raise
            reason = str(refused)
        else:
            count(None)
            return o.transpose(1, 2).contiguous(), None
    if attention_mask is None and cu_q is not None:
        raise ValueError(f"attn_implementation='headroom': {type(module).__name__}: {reason}; packed sequences that come without a mask cannot be left to "
                         "transformers' own attention, which does not know them")  # fmt: skip
    count(reason)
    arguments = {"dropout": dropout, "scaling": scaling, **kwargs}
    if given is not None:
        arguments["is_causal"] = given
    if sliding_window is not None:
        arguments["sliding_window"] = sliding_window
    if position_bias is not None:
        arguments["position_bias"] = position_bias
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
