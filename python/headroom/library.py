"""The C interface as ctypes sees it (include/headroom/headroom.h), and its errors as exceptions."""

import ctypes as c
import functools
import os

ALIGNMENT = 256


class Error(RuntimeError):
    """What the library refused, in its own words; `status` is the code's name: "bad_argument", "out_of_memory", ..."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class ContextSettings(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_int32), ("device_index", c.c_int32), ("threads", c.c_int32)]


class Tensor(c.Structure):
    _fields_ = [("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32), ("shape", c.c_int64 * 4), ("stride", c.c_int64 * 4)]


class Memory(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t)]


class Problem(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("dtype", c.c_int32),
        ("batch", c.c_int64), ("heads", c.c_int64), ("kv_heads", c.c_int64),
        ("len_q", c.c_int64), ("len_k", c.c_int64), ("head_dim", c.c_int64),
        ("mask", c.c_int32), ("align", c.c_int32), ("window", c.c_int64),
        ("scale", c.c_float), ("deterministic", c.c_int32), ("variant", c.c_char_p),
    ]  # fmt: skip


def _arguments(names):
    tensors = [(name, Tensor) for name in names.split()]
    memories = [("saved", Memory), ("workspace", Memory), ("stream", c.c_void_p)]
    return [("struct_size", c.c_uint32), ("reserved", c.c_uint32), *tensors, *memories]


class ForwardArguments(c.Structure):
    _fields_ = _arguments("q k v o lse")


class BackwardArguments(c.Structure):
    _fields_ = _arguments("q k v o lse d_o dlse dq dk dv")


_SIGNATURES = {
    "headroom_version": (c.c_char_p, []),
    "headroom_status_name": (c.c_char_p, [c.c_int]),
    "headroom_last_error": (c.c_char_p, []),
    "headroom_context_create": (c.c_int, [c.POINTER(ContextSettings), c.POINTER(c.c_void_p)]),
    "headroom_context_destroy": (None, [c.c_void_p]),
    "headroom_context_threads": (c.c_int, [c.c_void_p]),
    "headroom_attention_workspace_bytes": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.c_int, c.POINTER(c.c_size_t)]),
    "headroom_attention_saved_bytes": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.POINTER(c.c_size_t)]),
    "headroom_attention_forward": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.POINTER(ForwardArguments)]),
    "headroom_attention_backward": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.POINTER(BackwardArguments)]),
    "headroom_attention_explain": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.c_char_p, c.c_size_t, c.POINTER(c.c_size_t)]),
}


@functools.lru_cache(maxsize=None)
def library():
    name = os.environ.get("HEADROOM_LIBRARY", "libheadroom.so")
    try:
        loaded = c.CDLL(name)
    except OSError as refusal:
        raise ImportError(f"{refusal}: build it (make build) and set HEADROOM_LIBRARY to its path, or install it (make install)") from None
    for function, (result, arguments) in _SIGNATURES.items():
        entry = getattr(loaded, function)
        entry.restype, entry.argtypes = result, arguments
    return loaded


def call(name, *arguments):
    status = getattr(library(), name)(*arguments)
    if status != 0:
        raise Error(library().headroom_status_name(status).decode(), library().headroom_last_error().decode())


def version():
    return library().headroom_version().decode()


class Context:
    """Where the work is done: threads on this machine's CPU (0: every core this process may use)."""

    def __init__(self, threads=0):
        self._as_parameter_ = c.c_void_p()
        settings = ContextSettings(struct_size=c.sizeof(ContextSettings), threads=threads)
        call("headroom_context_create", c.byref(settings), c.byref(self._as_parameter_))

    @property
    def threads(self):
        return library().headroom_context_threads(self)

    def __del__(self):
        if getattr(self, "_as_parameter_", None):
            library().headroom_context_destroy(self)


@functools.lru_cache(maxsize=None)
def default_context():
    return Context()
