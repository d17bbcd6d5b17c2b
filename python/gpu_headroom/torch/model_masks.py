"""What transformers says of a mask, read: windows, documents and lengths for our attention, or why only a matrix can say it.

A mask is known by the function of transformers that describes it. What it says more than that is left to transformers' own attention.
"""

import copy
import sys

import torch

from . import masks
from .sdpa import count

_READ_BY_THE_MODEL = "the model adds its mask itself and does not ask transformers' attention interface"
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


def _asked(sizes, q_offset, kv_offset, mask_function, padding, device, cache_position):
    """What is asked of a mask by any version of transformers, under the names of its version 5."""
    asked = {name: int(n) if isinstance(n, torch.Tensor) and n.dim() == 0 else n for name, n in sizes.items()}  # torch.jit.trace gives tensors
    if hasattr(asked["q_length"], "shape"):  # transformers before 5 gives the positions themselves
        cache_position = asked["q_length"]
    if cache_position is not None:
        asked["q_length"], q_offset, device = cache_position.shape[0], cache_position[0], cache_position.device
    if device is None:
        device = "cpu" if padding is None else padding.device
    if mask_function is None:
        mask_function = sys.modules["transformers.masking_utils"].causal_mask_function
    asked |= {"q_offset": q_offset, "kv_offset": kv_offset, "mask_function": mask_function, "attention_mask": padding, "device": device}
    return asked, cache_position


def _arguments_to_keep(asked, sizes, cache_position, more):
    """Arguments of which transformers' own functions make the same mask later: a static cache adds to its length in place until then, and padding
    grows by each token."""
    kept = {**asked, **({} if cache_position is not None else sizes), **more}
    padding, keys, kv_offset = (asked[name] for name in ("attention_mask", "kv_length", "kv_offset"))
    if padding is not None and isinstance(keys, int) and isinstance(kv_offset, int):
        kept["attention_mask"] = torch.nn.functional.pad(padding, (0, max(0, keys + kv_offset - padding.shape[-1])))
    for name in ("q_offset", "kv_offset"):
        if isinstance(kept[name], torch.Tensor):
            kept[name] = kept[name].clone()
    if cache_position is not None:
        kept = {name: value for name, value in kept.items() if name not in ("q_length", "q_offset", "device")} | {"cache_position": cache_position}
    return kept


def _why_unreadable(function, padding):
    """Why the mask cannot be read where it is asked for; None if it can."""
    if torch.compiler.is_compiling():
        masking = sys.modules["transformers.masking_utils"]
        if function is not masking.causal_mask_function and function is not getattr(masking, "bidirectional_mask_function", None):
            return "a mask with a window or documents cannot be read while it is compiled: compile the layers, not the model's forward"
        if padding is not None:
            return "padding cannot be read while it is compiled: leave attention_mask out, or compile the layers"
    elif padding is not None:
        if masks.is_recorded():
            return "padding cannot be read while it is recorded (torch.jit.trace): another may come when the record runs"
        if _has_no_numbers(padding.device):
            return "padding has no numbers here (FakeTensorMode, or a meta tensor)"
    return None


def _said_of(asked):
    """What the mask's function says of the sequence, if that can be read here."""
    said = _Said()
    said.reason = _why_unreadable(asked["mask_function"], asked["attention_mask"])
    if said.reason is None:
        _read(asked["mask_function"], said)
        if said.reason is None and said.documents and not torch.compiler.is_compiling() and _has_no_numbers(asked["device"]):
            said.reason = "documents have no numbers here (FakeTensorMode, or meta tensors)"
    if said.reason is None and any(how == "packed" for how, _ in said.documents):
        moved = any(isinstance(n, torch.Tensor) or n for n in (asked["q_offset"], asked["kv_offset"]))
        if moved or asked["q_length"] != asked["kv_length"]:
            said.reason = "packed documents over a cache"
    return said


def _padding_of(asked, said, known_offsets):
    """The padding as booleans, or None if no key of the mask is padding. Says why, if tokens do not follow one another."""
    if asked["attention_mask"] is None or said.reason is not None:
        return None
    padding = asked["attention_mask"].bool()
    first, end = asked["kv_offset"], asked["kv_offset"] + asked["kv_length"]
    if known_offsets and bool(padding[:, first:end].all()) and padding.shape[1] >= end:
        return None
    if _holes(padding):
        said.reason = "padding between the tokens of a sequence"
    return padding


def _why_not_served(said, ends):
    """Why our attention cannot take what is said. ends: the ends of the rows and of the keys, or None if they are on a device."""
    if (said.before is not None or said.after) and said.after != 0 and (ends is None or ends[0] != ends[1]):
        return "a window to both sides over a cache"
    if said.after == 0 and ends is not None and ends[0] > ends[1]:
        return "rows behind the last key"
    return None


def _options(said, asked, ends):
    """The arguments of a Mask that say to our attention what the mask's function said."""
    options = {"causal": said.after == 0}
    if said.before is not None or said.after:
        window = (masks.OPEN if said.before is None else said.before, masks.OPEN if said.after is None else said.after)
        options = {"causal": False, "window": window}
    if asked["attention_mask"] is not None or said.documents or (ends is None and said.after == 0):
        options["cu_q"], options["cu_k"], options["align"] = _documents(said, asked)
    elif said.after == 0 and ends[0] < ends[1]:
        options["keys"] = ends[0] - asked["kv_offset"]
    return options


def mask(
    batch_size, q_length=None, kv_length=None, q_offset=0, kv_offset=0, mask_function=None, attention_mask=None, local_size=None,
    allow_is_causal_skip=True, allow_is_bidirectional_skip=False, device=None, cache_position=None, **rest,
):  # fmt: skip
    """transformers' mask interface: None where every row sees every key, else a Mask."""
    if isinstance(attention_mask, Mask):  # made before, by generate
        return attention_mask
    sizes = {"batch_size": batch_size, "q_length": q_length, "kv_length": kv_length}
    asked, cache_position = _asked(sizes, q_offset, kv_offset, mask_function, attention_mask, device, cache_position)
    arguments = _arguments_to_keep(asked, sizes, cache_position, {**rest, "local_size": local_size})
    said = _said_of(asked)
    q_offset, kv_offset, q_length, kv_length = (asked[name] for name in ("q_offset", "kv_offset", "q_length", "kv_length"))
    known_offsets = not isinstance(q_offset, torch.Tensor) and not isinstance(kv_offset, torch.Tensor)
    asked["attention_mask"] = _padding_of(asked, said, known_offsets)
    ends = (q_offset + q_length, kv_offset + kv_length) if known_offsets else None
    plain = said.before is None and asked["attention_mask"] is None and not said.documents and said.reason is None
    if plain and said.after is None and allow_is_bidirectional_skip:
        return None
    shape = (asked["batch_size"], 1, q_length, kv_length)
    if getattr(rest.get("config"), "model_type", None) in _ADD_KEYS:
        return Mask(arguments, shape, reason="the model adds keys").added()
    if plain and said.after == 0 and allow_is_causal_skip and ends is not None and ends[0] == ends[1] and (q_length == 1 or q_length == kv_length):
        return Mask(arguments, shape, causal=True, plain=True)
    reason = said.reason or _why_not_served(said, ends)
    if reason is None:
        return Mask(arguments, shape, **_options(said, asked, ends))
    left = Mask(arguments, shape, reason=reason)
    if not torch.compiler.is_compiling():  # every layer asks for it, and compiled ones cannot make it again without a guard for each length
        left.as_tensor()
    return left
