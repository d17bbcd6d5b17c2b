"""Attention on arrays. NumPy is needed here, and only here."""

import ctypes as c

import numpy as np

from . import library as lib

_DTYPES = {"float32": 0, "uint16": 1, "float16": 2}  # uint16: the bits of bf16, which NumPy does not know
_MASKS = {"full": 0, "causal": 1, "window": 2}


def _array(x, name):
    if isinstance(x, np.ndarray):
        return x
    if hasattr(x, "__array_interface__"):
        return np.asarray(x)
    if hasattr(x, "__dlpack__"):
        return np.from_dlpack(x)
    try:
        return np.asarray(memoryview(x))
    except TypeError:
        raise TypeError(f"{name}: a {type(x).__name__} is not an array that can be viewed without a copy") from None


def _view(x):
    if x is None:
        return lib.Tensor()
    if x.dtype.name not in _DTYPES:
        raise TypeError(f"dtype {x.dtype} is not served: float32, float16, or uint16 holding bf16")
    if any(stride % x.itemsize for stride in x.strides):
        raise ValueError("a stride is not a whole number of elements")
    rank = x.ndim
    if rank > 4:
        raise ValueError(f"an array of {rank} dimensions; at most 4")
    t = lib.Tensor(data=x.ctypes.data, dtype=_DTYPES[x.dtype.name], rank=rank)
    t.shape[:rank] = x.shape
    if x.size and not x.flags.c_contiguous:
        t.stride[:rank] = [stride // x.itemsize for stride in x.strides]
    return t


def _mask(text):
    """"full", "causal", "window:256", the last two also with ":top-left"."""
    words = text.split(":")
    align = int(words[-1] == "top-left" and words[0] != "full")
    words = words[: len(words) - align]
    window = int(words[1]) if words[0] == "window" and len(words) == 2 and words[1].isdigit() else 0
    if words[0] not in _MASKS or len(words) != (2 if words[0] == "window" else 1) or (words[0] == "window" and window < 1):
        raise ValueError(f"mask '{text}': full, causal or window:W, the last two also with :top-left")
    return _MASKS[words[0]], align, window


class Attention:
    """One problem: its shapes, its memory needs, and its two passes. The arrays given later must have the shapes given here."""

    def __init__(self, q_shape, k_shape, dtype="float32", mask="full", scale=None, variant=None, deterministic=False, context=None):
        if len(q_shape) != 4 or len(k_shape) != 4:
            raise ValueError(f"q {tuple(q_shape)} and k {tuple(k_shape)}: [batch, len, heads, head_dim] each")
        self.context = context or lib.default_context()
        self.dtype = np.dtype(dtype)
        if self.dtype.name not in _DTYPES:
            raise TypeError(f"dtype {self.dtype} is not served: float32, float16, or uint16 holding bf16")
        kind, align, window = _mask(mask)
        self.problem = lib.Problem(
            struct_size=c.sizeof(lib.Problem), dtype=_DTYPES[self.dtype.name],
            batch=q_shape[0], heads=q_shape[2], kv_heads=k_shape[2], len_q=q_shape[1], len_k=k_shape[1], head_dim=q_shape[3],
            mask=kind, align=align, window=window, scale=scale or 0.0, deterministic=int(deterministic),
            variant=variant.encode() if variant else None,
        )  # fmt: skip
        self.saved_bytes = self._bytes("headroom_attention_saved_bytes")
        self.workspace_bytes = max(self._bytes("headroom_attention_workspace_bytes", which) for which in (0, 1))
        self._workspace = self._memory(self.workspace_bytes)

    def _bytes(self, name, *which):
        bytes_needed = c.c_size_t()
        lib.call(name, self.context, c.byref(self.problem), *which, c.byref(bytes_needed))
        return bytes_needed.value

    @staticmethod
    def _memory(size):
        raw = np.empty(size + lib.ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % lib.ALIGNMENT
        return raw[start : start + size]

    @staticmethod
    def _lend(memory):
        return lib.Memory(memory.ctypes.data if memory.size else None, memory.size)

    def forward(self, q, k, v):
        """Returns o, lse and what backward needs beside them."""
        q, k, v = _array(q, "q"), _array(k, "k"), _array(v, "v")
        o = np.empty(q.shape, q.dtype)
        lse = np.empty((q.shape[0], q.shape[2], q.shape[1]), np.float32)
        saved = self._memory(self.saved_bytes)
        arguments = lib.ForwardArguments(struct_size=c.sizeof(lib.ForwardArguments), saved=self._lend(saved), workspace=self._lend(self._workspace))
        for name, x in {"q": q, "k": k, "v": v, "o": o, "lse": lse}.items():
            setattr(arguments, name, _view(x))
        lib.call("headroom_attention_forward", self.context, c.byref(self.problem), c.byref(arguments))
        return o, lse, saved

    def backward(self, q, k, v, o, lse, d_o, saved, dlse=None):
        """Returns dq, dk, dv."""
        given = {"q": q, "k": k, "v": v, "o": o, "lse": lse, "d_o": d_o}
        given = {name: _array(x, name) for name, x in given.items()}
        dlse = None if dlse is None else _array(dlse, "dlse")
        made = {"d" + name: np.empty(given[name].shape, given[name].dtype) for name in ("q", "k", "v")}
        arguments = lib.BackwardArguments(struct_size=c.sizeof(lib.BackwardArguments), saved=self._lend(saved), workspace=self._lend(self._workspace))
        for name, x in {**given, "dlse": dlse, **made}.items():
            setattr(arguments, name, _view(x))
        lib.call("headroom_attention_backward", self.context, c.byref(self.problem), c.byref(arguments))
        return made["dq"], made["dk"], made["dv"]

    def explain(self):
        """One line per variant, best first: chosen, serves too, or why it cannot."""
        needed = c.c_size_t()
        lib.call("headroom_attention_explain", self.context, c.byref(self.problem), None, 0, c.byref(needed))
        text = c.create_string_buffer(needed.value)
        lib.call("headroom_attention_explain", self.context, c.byref(self.problem), text, needed.value, None)
        return text.value.decode()


def _of(q, k, options):
    q, k = _array(q, "q"), _array(k, "k")
    return Attention(q.shape, k.shape, q.dtype, **options)


def attention_forward(q, k, v, **options):
    """o, lse, saved. Options: mask, scale, variant, deterministic, context."""
    return _of(q, k, options).forward(q, k, v)


def attention_backward(q, k, v, o, lse, d_o, saved, dlse=None, **options):
    """dq, dk, dv, with the options that forward had."""
    return _of(q, k, options).backward(q, k, v, o, lse, d_o, saved, dlse)


def explain(q_shape, k_shape, **options):
    return Attention(q_shape, k_shape, **options).explain()
