"""Attention on arrays of NumPy, CuPy, JAX, torch (without autograd: see gpu_headroom.torch), and whatever speaks DLPack.

Shapes: q [batch, len_q, heads, head_dim]; k and v [batch, len_k, kv_heads, head_dim], where kv_heads divides heads;
o and every gradient have the shape of what they belong to; lse [batch, heads, len_q], float32.
Types: float32, float16, bfloat16 (NumPy: ml_dtypes.bfloat16, or its bits as uint16), all of q, k, v the same.

What a problem may have beside that:
sink          float32 [heads]: a logit per head that joins the softmax's sum and has no value; backward gives its gradient too
alibi_slopes  float32 [heads], [batch, heads], or, packed, [batch, documents, heads]: a score falls by slope * |position - key|, as in ALiBi;
              the last row is at the last key (with ':top-left' row i is at key i), in each document. They have no gradient
dropout       the chance of a probability to be dropped; seed and offset say which. The same numbers give the same on every device
cu_seqlens_q  int32 [batch, documents + 1]: sequences packed one behind another into each row of the batch; document d has the queries
              cu_seqlens_q[b][d] up to cu_seqlens_q[b][d + 1]. A batch of 1 may leave the first dimension out. cu_seqlens_k: the same of the
              keys; left out, that of the queries. The mask holds inside a document; no row sees another document's.
"""

import ctypes as c
import math
import numbers
import operator
from typing import Any, Generic, NoReturn, Optional, Sequence, Tuple, TypeVar

from . import arrays, words
from . import library as lib

Array = TypeVar("Array")  # an array of NumPy, CuPy, JAX, torch, or what speaks DLPack; results belong to q's library

_SAID = {"sink": "sink", "cu_q": "cu_seqlens_q", "cu_k": "cu_seqlens_k", "pages": "pages", "alibi": "alibi_slopes"}  # what callers call them
_MASKS = {"full": 0, "causal": 1, "window": 2}
_ALLOWED = (
    "'full', 'causal', 'window:W' or 'window:W+A' (and A positions after its own), all but the first also with ':top-left' "
    "(row i sees keys up to i, whatever the lengths)"
)


def read_mask(mask):
    """(kind, align, window, after) of "full", "causal", "window:256", "window:256+128", all but the first also with ":top-left"."""
    if mask is None or isinstance(mask, bool):
        meant = "mask='causal'" if mask else "mask='full'"
        raise TypeError(f"mask is {mask}: say it in a word: {_ALLOWED}; here probably {meant}")
    if not isinstance(mask, str):
        raise TypeError(f"mask is a {type(mask).__name__}: masks given as arrays are not served, only {_ALLOWED}")
    words = mask.split(":")
    align = int(words[-1] == "top-left" and words[0] != "full")
    words = words[: len(words) - align]
    numbers_said = words[1].split("+") if words[0] == "window" and len(words) == 2 else []
    fine = words[0] in _MASKS and (words[0] == "window") == bool(numbers_said) and len(words) <= 2 and len(numbers_said) <= 2
    if not fine or (len(words) == 2 and not numbers_said) or not all(n.isascii() and n.isdigit() for n in numbers_said):
        raise ValueError(f"mask '{mask}': {_ALLOWED}")
    window, after = [int(n) for n in (numbers_said + ["0", "0"])[:2]] if numbers_said else (0, 0)
    if numbers_said and not 1 <= window + after < 1 << 62 or words[0] == "window" and window < 1:
        raise ValueError(f"mask '{mask}': a window has at least 1 key, and no keys are 2^62")
    return _MASKS[words[0]], align, window, after


def read_scale(scale):
    """(scale, given): None is 1/sqrt(head_dim); 0.0 is 0."""
    if scale is None:
        return 0.0, 0
    if not isinstance(scale, numbers.Real) or isinstance(scale, bool):
        raise TypeError(f"scale is a {type(scale).__name__}: a number, or None for 1/sqrt(head_dim)")
    if not math.isfinite(scale):
        raise ValueError(f"scale is {scale}: it must be finite")
    return float(scale), 1


def read_shape(shape, name):
    """Four whole numbers that 64 bits hold."""
    try:
        sizes = tuple(operator.index(n) for n in shape)
    except TypeError:
        raise TypeError(f"{name}_shape is {shape!r}: four whole numbers, [batch, len, heads, head_dim]") from None
    if len(sizes) != 4 or any(n < 0 or n >= 1 << 62 for n in sizes):
        raise ValueError(f"{name}_shape is {sizes}: four whole numbers, at least 0 and below 2^62, [batch, len, heads, head_dim]")
    return sizes


def checked_context(context, device="cpu"):
    """The context given, or the default one of the device."""
    if context is None:
        return lib.default_context(device)
    if not isinstance(context, lib.Context):
        raise TypeError(f"context is a {type(context).__name__}: a gpu_headroom.Context is needed")
    return context


def make_problem(
    q_shape, k_shape, dtype, mask="full", scale=None, variant=None, deterministic=False, tf32=False, dim_v=None, softcap=0.0,
    sink=False, documents=0, pages_of_sequence=0, dropout=0.0, quantise=None, alibi=False,
):  # fmt: skip
    """The C interface's words for a problem; shapes are [batch, len, heads, head_dim], of k in pages [pages, page, heads, head_dim]."""
    q_shape, k_shape = read_shape(q_shape, "q"), read_shape(k_shape, "k")
    paged = pages_of_sequence > 0
    if q_shape[3] != k_shape[3] or (q_shape[0] != k_shape[0] and not paged):
        raise ValueError(f"q is {q_shape} and k is {k_shape}: {'' if paged else 'batch and '}head_dim must agree")
    if variant is not None and not isinstance(variant, str):
        raise TypeError(f"variant is a {type(variant).__name__}: a name or family as explain() lists them, or None for the best")
    if variant is not None and (not variant or "\0" in variant):
        raise ValueError(f"variant is {variant!r}: a name or family as explain() lists them, or None for the best")
    kind, align, window, after = read_mask(mask)
    number, given = read_scale(scale)
    if not isinstance(softcap, numbers.Real) or not math.isfinite(softcap) or softcap < 0:
        raise ValueError(f"softcap is {softcap!r}: a number above 0, or 0 for none")
    if isinstance(dropout, bool) or not isinstance(dropout, numbers.Real) or not 0 <= dropout < 1:
        raise ValueError(f"dropout is {dropout!r}: a number, at least 0 and below 1")
    quantised = words.quantise_to(quantise)
    words.check_quantised(quantised, dtype)
    if dim_v is not None:
        dim_v = lib.whole(dim_v, "dim_v", 1, 1 << 20, "the head_dim of v, or None for that of q")
    return lib.Problem(
        struct_size=c.sizeof(lib.Problem), dtype=arrays.CODES[dtype],
        batch=q_shape[0], heads=q_shape[2], kv_heads=k_shape[2], len_q=q_shape[1], head_dim=q_shape[3],
        len_k=pages_of_sequence * k_shape[1] if paged else k_shape[1],
        mask=kind, align=align, window=window, scale=number, scale_given=given, deterministic=int(bool(deterministic)),
        variant=variant.encode() if variant else None, math=int(bool(tf32)),
        window_after=after, head_dim_v=0 if dim_v is None else dim_v, softcap=softcap, sink=int(bool(sink)),
        documents=documents, page=k_shape[1] if paged else 0, pages=k_shape[0] if paged else 0, dropout=dropout,
        quantise=quantised, alibi=int(bool(alibi)),
    )  # fmt: skip


def bytes_of(name, context, problem, *which):
    needed = c.c_size_t()
    lib.call(name, context, c.byref(problem), *which, c.byref(needed))
    return needed.value


def explained(context, problem):
    needed = c.c_size_t()
    lib.call("headroom_attention_explain", context, c.byref(problem), None, 0, c.byref(needed))
    text = c.create_string_buffer(needed.value)
    lib.call("headroom_attention_explain", context, c.byref(problem), text, needed.value, None)
    return text.value.decode()


def _dtype_named(dtype):
    name = words.dtype(dtype)
    if name not in arrays.SIZES:
        try:
            import numpy

            name = arrays._name_of_dtype(numpy.dtype(dtype))
        except (ImportError, TypeError):
            pass
    if name not in arrays.SIZES:
        raise TypeError(f"dtype {name} is not served: {arrays.FLOATS_IN_WORDS}")
    return name


class Forward(Generic[Array]):
    """What a forward pass left: `o`, `lse`, and what `backward` needs, the problem itself included.

    q, k and v are kept, not copied: changed before backward they are refused there, as far as that can be seen (docs/python.md).
    o and lse are read by backward too: NumPy's are for reading only.
    """

    def __init__(self, attention, q, k, v, with_, o, lse, saved, seed):
        self._attention, self._inputs, self._with, self._saved = attention, (q, k, v), with_, saved
        self._seed = seed
        self._o, self._lse = o, lse
        for output in (o, lse):
            arrays.make_read_only(output)
        self._seen = {name: arrays.fingerprint(x) for name, x in self._read_by_backward()}

    @property
    def o(self) -> Array:
        """The result, [batch, len_q, heads, head_dim]; of NumPy for reading only: change a copy."""
        return self._o

    @property
    def lse(self) -> Array:
        """The logarithm of the softmax's sum, float32 [batch, heads, len_q]."""
        return self._lse

    def _read_by_backward(self):
        small = [(_SAID[name], x) for name, x in self._with.items()]
        return [*zip("qkv", self._inputs), ("o", self._o), ("lse", self._lse), *small]

    def backward(self, d_o: Array, dlse: Optional[Array] = None) -> Tuple[Array, ...]:
        """(dq, dk, dv), and dsink where there is a sink, for the gradient of o, and of lse where that was used too.

        May be called more than once.
        """
        for name, x in self._read_by_backward():
            if arrays.fingerprint(x) != self._seen[name]:
                raise ValueError(
                    f"{name} was changed after forward, and backward reads it again: the gradients would be wrong. "
                    "Change a copy of it, or call forward again"
                )
        return self._attention._backward(self, d_o, dlse)

    def __iter__(self) -> NoReturn:
        raise TypeError("forward returns one object: its .o, its .lse, and .backward(d_o)")


class Attention:
    """One problem: its shapes, its memory needs, and its passes. Arrays given later have the shapes given here.

    sink: whether there is one. alibi: whether there are alibi_slopes. documents: how many in each row of the batch. pages_of_sequence: of a cache in pages, how many a
    sequence may have; k_shape is then [pages, page, kv_heads, head_dim]. quantise: as in attention_forward.
    Any number of threads may use one object at once: each call has workspace of its own.
    """

    def __init__(
        self, q_shape: Sequence[int], k_shape: Sequence[int], dtype: Any = "float32", mask: str = "full", scale: Optional[float] = None,
        variant: Optional[str] = None, deterministic: bool = False, context: Optional[lib.Context] = None, dim_v: Optional[int] = None,
        softcap: float = 0.0, sink: bool = False, documents: int = 0, pages_of_sequence: int = 0, dropout: float = 0.0,
        quantise: Optional[str] = None, alibi: bool = False, **misspelt: NoReturn,
    ) -> None:  # fmt: skip
        if misspelt:
            words.refuse(Attention, misspelt, words.OF_ARRAYS)
        self.context = checked_context(context)
        self.dtype = _dtype_named(dtype)
        self.problem = make_problem(
            q_shape, k_shape, self.dtype, mask, scale, variant, deterministic, dim_v=dim_v, softcap=softcap, sink=sink, documents=documents,
            pages_of_sequence=pages_of_sequence, dropout=dropout, quantise=quantise, alibi=alibi,
        )  # fmt: skip
        self._q_shape, self._k_shape = read_shape(q_shape, "q"), read_shape(k_shape, "k")
        of_v = self._q_shape[3] if dim_v is None else dim_v
        self._o_shape, self._v_shape = (*self._q_shape[:3], of_v), (*self._k_shape[:3], of_v)
        self.saved_bytes = bytes_of("headroom_attention_saved_bytes", self.context, self.problem)
        passes = (0,) if pages_of_sequence or quantise else (0, 1)  # a cache in pages and fp8 have no backward
        self.workspace_bytes = max(bytes_of("headroom_attention_workspace_bytes", self.context, self.problem, i) for i in passes)
        self._small = {}  # type and shape of what the problem asks for beside q, k and v
        if sink:
            self._small["sink"] = "float32", (self._q_shape[2],)
        if alibi:
            self._small["alibi"] = "float32", (self._q_shape[2],)  # or more: _shape_of
        if documents:
            self._small["cu_q"] = self._small["cu_k"] = "int32", (self._q_shape[0], documents + 1)
        if pages_of_sequence:
            self._small["pages"] = "int32", (self._q_shape[0], pages_of_sequence)
        self._free = {}  # unused workspaces, by the stream that used them last

    def _check(self, v, name, shape):
        if v.device != self.context.device:
            raise ValueError(f"{name} is on {v.device}, the context is {self.context.device}'s")
        if v.dtype != self.dtype:
            raise TypeError(f"{name} is {v.dtype}, q is {self.dtype}: all of q, k, v and their gradients have one dtype")
        if v.shape != shape:
            raise ValueError(f"{name} has the shape {v.shape}, expected {shape}")

    def _run(self, function, arguments, stream):
        free = self._free.setdefault(stream, [])
        try:
            workspace = free.pop()
        except IndexError:
            workspace = lib.Owned(self.context, self.workspace_bytes)
        arguments.struct_size, arguments.workspace, arguments.stream = c.sizeof(arguments), workspace.lent, stream
        try:
            lib.call(function, self.context, c.byref(self.problem), c.byref(arguments))
        finally:
            free.append(workspace)

    def _settle(self, like, device, stream, view):
        # Outputs of a library whose streams we do not know: they are ready when this returns.
        if device != "cpu" and arrays.library_of(like) not in ("torch", "cupy") and view.data:
            lib.call("headroom_memory_read", self.context, c.create_string_buffer(1), view.data, 1, stream)

    def _small_views(self, with_, told):
        for name, x in with_.items():
            if (x is not None) != (name in self._small):
                raise ValueError(f"{_SAID[name]} is {'missing' if x is None else 'given, and this problem has none'}")
        return {
            name: arrays.small(with_[name], _SAID[name], dtype, self._shape_of(name, shape, with_[name]), self.context.device, told)
            for name, (dtype, shape) in self._small.items()
        }

    def _shape_of(self, name, shape, given):
        """Slopes may be of each head alone, and of each row of the batch, and of each document."""
        rank = len(arrays.shape_of(given, _SAID[name])) if name == "alibi" else 0
        if rank == 2:
            return (self._q_shape[0], *shape)
        return (self._q_shape[0], self.problem.documents, *shape) if rank == 3 and self.problem.documents else shape

    def forward(
        self, q: Array, k: Array, v: Array, sink: Any = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None, pages: Any = None,
        seed: int = 0, offset: int = 0, alibi_slopes: Any = None,
    ) -> Forward[Array]:  # fmt: skip
        """A Forward: .o, .lse, .backward(d_o). sink, cu_seqlens_q, pages and alibi_slopes are given where the problem has them; seed and offset are of dropout."""
        numbers_of = {name: lib.whole(n, name, 0, (1 << 64) - 1, "of 64 bits") for name, n in (("seed", seed), ("offset", offset))}
        given = {"q": q, "k": k, "v": v}
        with_ = {"sink": sink, "cu_q": cu_seqlens_q, "cu_k": cu_seqlens_q if cu_seqlens_k is None else cu_seqlens_k, "pages": pages}
        with_["alibi"] = alibi_slopes
        stream, told = arrays.stream_of(q, self.context.device)
        views = {name: arrays.readable(x, name, told) for name, x in given.items()}
        for name, seen in views.items():
            self._check(seen, name, {"q": self._q_shape, "k": self._k_shape, "v": self._v_shape}[name])
        views.update(self._small_views(with_, told))
        batch, len_q, heads, _ = self._q_shape
        o = arrays.empty(q, None, self._o_shape, self.context.device)
        lse = arrays.empty(q, "float32", (batch, heads, len_q), self.context.device)
        views["o"], views["lse"] = arrays.view(o, "o", told), arrays.view(lse, "lse", told)
        saved = lib.Owned(self.context, self.saved_bytes)
        arguments = lib.ForwardArguments(saved=saved.lent, **{name: seen.tensor() for name, seen in views.items()}, **numbers_of)
        self._run("headroom_attention_forward", arguments, stream)
        self._settle(q, self.context.device, stream, views["lse"])
        return Forward(self, q, k, v, with_, o, lse, saved, numbers_of)

    def _backward(self, forward, d_o, dlse):
        q, k, v = forward._inputs
        stream, told = arrays.stream_of(q, self.context.device)
        given = {"q": q, "k": k, "v": v, "o": forward.o, "d_o": d_o}
        views = {name: arrays.readable(x, name, told) for name, x in given.items()}
        self._check(views["d_o"], "d_o", self._o_shape)
        if "pages" in self._small:
            raise ValueError("a cache in pages has no backward: pass k and v as they are, [batch, len, heads, head_dim]")
        if self.problem.quantise:
            raise ValueError("attention in fp8 has no backward: leave quantise out where you need gradients")
        views.update(self._small_views(forward._with, told))
        views["lse"] = arrays.view(forward.lse, "lse", told)
        if dlse is not None:
            views["dlse"] = arrays.view(dlse, "dlse", told)
            rows = views["lse"].shape
            if views["dlse"].dtype != "float32" or views["dlse"].shape != rows:
                raise ValueError(f"dlse is {views['dlse'].dtype} {views['dlse'].shape}, expected float32 {rows}")
            if views["dlse"].stride != views["lse"].stride:
                views["dlse"] = arrays.view(arrays.contiguous(dlse, "dlse"), "dlse", told)
        made = {
            "d" + name: arrays.empty(given[name], None, shape, self.context.device)
            for name, shape in (("q", self._q_shape), ("k", self._k_shape), ("v", self._v_shape))
        }
        if "sink" in self._small:
            made["dsink"] = arrays.empty(q, "float32", self._small["sink"][1], self.context.device)
        views.update({name: arrays.view(x, name, told) for name, x in made.items()})
        arguments = lib.BackwardArguments(saved=forward._saved.lent, **{name: seen.tensor() for name, seen in views.items()}, **forward._seed)
        self._run("headroom_attention_backward", arguments, stream)
        self._settle(q, self.context.device, stream, views["dv"])
        return tuple(made.values())

    def backward(self, forward: Forward[Array], d_o: Array, dlse: Optional[Array] = None) -> Tuple[Array, ...]:
        """(dq, dk, dv), and dsink where there is a sink: forward.backward(d_o, dlse)."""
        return attention_backward(forward, d_o, dlse)

    def explain(self) -> str:
        """One line per variant, best first: chosen, serves too, or why it cannot."""
        return explained(self.context, self.problem)


def _views(q, k, v, k_name="k", v_name="v"):
    views = [arrays.view(x, name, 1) for x, name in ((q, "q"), (k, k_name), (v, v_name))]
    for name, seen in zip(("q", k_name, v_name), views):
        if len(seen.shape) != 4:
            raise ValueError(f"{name} has the shape {seen.shape}, expected [batch, len, heads, head_dim]")
    return views


def _documents(cu_seqlens):
    """How many documents a list of their borders has."""
    shape = arrays.shape_of(cu_seqlens, "cu_seqlens_q")
    if len(shape) not in (1, 2) or shape[-1] < 2:
        raise ValueError(f"cu_seqlens_q has the shape {shape}, expected [batch, documents + 1], of one document at least")
    return shape[-1] - 1


def attention_forward(
    q: Array, k: Array, v: Array, *, mask: str = "full", scale: Optional[float] = None, variant: Optional[str] = None,
    deterministic: bool = False, context: Optional[lib.Context] = None, softcap: float = 0.0, sink: Any = None, cu_seqlens_q: Any = None,
    cu_seqlens_k: Any = None, dropout: float = 0.0, seed: int = 0, offset: int = 0, quantise: Optional[str] = None,
    alibi_slopes: Any = None, **misspelt: NoReturn,
) -> Forward[Array]:  # fmt: skip
    """O = softmax(scale * Q K^T + mask) V, exactly. Returns a Forward: .o, .lse, .backward(d_o).

    mask: 'full', 'causal', 'window:W' or 'window:W+A', all but the first also with ':top-left'. v may have a head_dim of its own.
    softcap: scores become softcap * tanh(score / softcap). scale: None is 1/sqrt(head_dim); 0.0 is 0.
    sink: float32 [heads]. cu_seqlens_q, cu_seqlens_k: int32 [batch, documents + 1], or [documents + 1] for a batch of 1.
    dropout: the chance of a probability to be dropped, in steps of 1/32768; seed and offset, of 64 bits, say which: take others for each call.
    alibi_slopes: float32 [heads], [batch, heads] or [batch, documents, heads].
    variant: a name or family that explain() lists. deterministic: the same bits on every run, or an Error.
    quantise: "fp8" rounds q, k and v, which are bfloat16, to 8 bits with a scale for each head, and multiplies those. Forward only.
    """
    if misspelt:
        words.refuse(attention_forward, misspelt, words.OF_ARRAYS)
    of_q, of_k, of_v = _views(q, k, v)
    if cu_seqlens_k is not None and cu_seqlens_q is None:
        raise ValueError("cu_seqlens_k is given without cu_seqlens_q")
    of = Attention(
        of_q.shape, of_k.shape, of_q.dtype, mask, scale, variant, deterministic, checked_context(context, of_q.device), of_v.shape[3],
        softcap, sink is not None, 0 if cu_seqlens_q is None else _documents(cu_seqlens_q), dropout=dropout,
        quantise=quantise, alibi=alibi_slopes is not None,
    )  # fmt: skip
    return of.forward(q, k, v, sink, cu_seqlens_q, cu_seqlens_k, seed=seed, offset=offset, alibi_slopes=alibi_slopes)


def attention_with_cache(
    q: Array, k_cache: Array, v_cache: Array, lengths: Any = None, pages: Any = None, *, mask: str = "causal", scale: Optional[float] = None,
    variant: Optional[str] = None, context: Optional[lib.Context] = None, softcap: float = 0.0, sink: Any = None,
    alibi_slopes: Any = None, **misspelt: NoReturn,
) -> Forward[Array]:  # fmt: skip
    """Attention of new positions over a cache of keys and values. Returns a Forward: .o and .lse.

    q: [batch, new, heads, head_dim], the newest positions of each sequence, whose keys are in the cache already.
    k_cache, v_cache: [batch, room, kv_heads, head_dim]; or, with `pages`, [pages, page, kv_heads, head_dim].
    lengths: int32 [batch], or one number: how many keys of each sequence there are; None: all. What lies behind them is not read.
    pages: int32 [batch, most]: which page has the keys n * page ... of a sequence.
    """
    if misspelt:
        words.refuse(attention_with_cache, misspelt, words.OF_ARRAYS)
    of_q, of_k, of_v = _views(q, k_cache, v_cache, "k_cache", "v_cache")
    of_sequence = 0
    if pages is not None:
        shape = arrays.shape_of(pages, "pages")
        if len(shape) != 2 or shape[1] < 1:
            raise ValueError(f"pages has the shape {shape}, expected [batch, pages of a sequence]")
        of_sequence = shape[1]
    of = Attention(
        of_q.shape, of_k.shape, of_q.dtype, mask, scale, variant, False, checked_context(context, of_q.device), of_v.shape[3],
        softcap, sink is not None, int(lengths is not None), of_sequence, alibi=alibi_slopes is not None,
    )  # fmt: skip
    if lengths is None:
        return of.forward(q, k_cache, v_cache, sink, pages=pages, alibi_slopes=alibi_slopes)
    batch, new = of_q.shape[:2]
    ends = arrays.one_for_each(lengths, batch, of_k.shape[1] * (of_sequence or 1))
    return of.forward(q, k_cache, v_cache, sink, arrays.from_zero(q, [new] * batch), arrays.from_zero(q, ends), pages, alibi_slopes=alibi_slopes)


def attention_backward(forward: Forward[Array], d_o: Array, dlse: Optional[Array] = None) -> Tuple[Array, ...]:
    """(dq, dk, dv), and dsink where there is a sink, of what attention_forward returned: its mask, scale and variant are remembered."""
    if not isinstance(forward, Forward):
        raise TypeError(
            f"attention_backward takes what attention_forward returned, and got a {type(forward).__name__}: "
            "r = hr.attention_forward(q, k, v, mask='causal'); dq, dk, dv = hr.attention_backward(r, d_o)"
        )
    return forward.backward(d_o, dlse)


def explain(
    q: Any, k: Any, v: Any = None, *, dtype: Any = None, mask: str = "full", scale: Optional[float] = None, variant: Optional[str] = None,
    deterministic: bool = False, tf32: bool = False, dim_v: Optional[int] = None, softcap: float = 0.0, sink: Any = False,
    documents: int = 0, pages_of_sequence: int = 0, context: Optional[lib.Context] = None, cu_seqlens_q: Any = None, cu_seqlens_k: Any = None,
    dropout: float = 0.0, quantise: Optional[str] = None, alibi_slopes: Any = False, **misspelt: NoReturn,
) -> str:  # fmt: skip
    """One line per variant for a problem, best first: chosen, serves too, or why it cannot.

    q, k and v are arrays, or q and k are shapes [batch, len, heads, head_dim]; dtype is then that of the problem, float32 if it is left out.
    """
    if misspelt:
        words.refuse(explain, misspelt, words.OF_ARRAYS)
    if v is not None and dtype is None and not hasattr(v, "shape"):
        v, dtype = None, v  # explain(q_shape, k_shape, "bfloat16")
    device = "cpu"
    if hasattr(q, "shape") or hasattr(k, "shape") or v is not None:
        of_q, of_k, of_v = _views(q, k, k if v is None else v)
        if dtype is not None and _dtype_named(dtype) != of_q.dtype:
            raise ValueError(f"dtype is {_dtype_named(dtype)}, and q is {of_q.dtype}: leave dtype out where arrays are given")
        q, k, dtype, device = of_q.shape, of_k.shape, of_q.dtype, of_q.device
        dim_v = dim_v if v is None else of_v.shape[3]
    if cu_seqlens_q is not None:
        documents = _documents(cu_seqlens_q)
    has_sink, alibi = (x if isinstance(x, bool) else x is not None for x in (sink, alibi_slopes))
    problem = make_problem(
        q, k, _dtype_named("float32" if dtype is None else dtype), mask, scale, variant, deterministic, tf32, dim_v, softcap, has_sink,
        documents, pages_of_sequence, dropout, quantise, alibi,
    )  # fmt: skip
    return explained(checked_context(context, device), problem)
