"""The C interface as ctypes sees it (include/headroom/headroom.h), and its errors as exceptions."""

import ctypes as c
import functools
import operator
import os
import re
import threading
import weakref

ALIGNMENT = 256
CPU, CUDA = 0, 1  # headroom_device
TRUST_POINTERS = 1  # flags of arguments


class Error(RuntimeError):
    """What the library refused, in its own words; `status` is the code's name: "bad_argument", "out_of_memory", ..."""

    def __init__(self, status: str, text: str) -> None:
        super().__init__(text)
        self.status = status


class ContextSettings(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_int32), ("device_index", c.c_int32), ("threads", c.c_int32)]


class Tensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("dtype", c.c_int32), ("rank", c.c_int32),
        ("shape", c.c_int64 * 4), ("stride", c.c_int64 * 4), ("bytes", c.c_int64),
    ]  # fmt: skip


class Memory(c.Structure):
    _fields_ = [("data", c.c_void_p), ("bytes", c.c_size_t)]


class Problem(c.Structure):
    _fields_ = [
        ("struct_size", c.c_uint32), ("dtype", c.c_int32),
        ("batch", c.c_int64), ("heads", c.c_int64), ("kv_heads", c.c_int64),
        ("len_q", c.c_int64), ("len_k", c.c_int64), ("head_dim", c.c_int64),
        ("mask", c.c_int32), ("align", c.c_int32), ("window", c.c_int64),
        ("scale", c.c_float), ("deterministic", c.c_int32), ("variant", c.c_char_p),
        ("scale_given", c.c_int32), ("math", c.c_int32),
        ("window_after", c.c_int64), ("head_dim_v", c.c_int64), ("softcap", c.c_float), ("sink", c.c_int32),
        ("documents", c.c_int64), ("page", c.c_int64), ("pages", c.c_int64), ("dropout", c.c_float),
        ("unused", c.c_int32), ("quantise", c.c_int32), ("unused_too", c.c_int32), ("alibi", c.c_int32), ("reserved", c.c_int32),
    ]  # fmt: skip


def _arguments(names, later):
    memories = [("saved", Memory), ("workspace", Memory), ("stream", c.c_void_p)]
    tensors = [[(name, Tensor) for name in some.split()] for some in (names, later)]
    numbers = [("seed", c.c_uint64), ("offset", c.c_uint64)]
    return [("struct_size", c.c_uint32), ("flags", c.c_uint32), *tensors[0], *memories, *tensors[1], *numbers, ("alibi", Tensor)]


class ForwardArguments(c.Structure):
    _fields_ = _arguments("q k v o lse", "sink cu_q cu_k pages random")


class BackwardArguments(c.Structure):
    _fields_ = _arguments("q k v o lse d_o dlse dq dk dv", "sink cu_q cu_k dsink random")


class CommSettings(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("rank", c.c_int32), ("ranks", c.c_int32), ("patience_ms", c.c_int32), ("rendezvous", c.c_char_p)]


class CommGpu(c.Structure):
    _fields_ = [("struct_size", c.c_uint32), ("device", c.c_int32), ("route", c.c_int32), ("staging_bytes", c.c_int64)]


_SIZE = c.POINTER(c.c_size_t)
_SIGNATURES = {
    "headroom_version": (c.c_char_p, []),
    "headroom_status_name": (c.c_char_p, [c.c_int]),
    "headroom_last_error": (c.c_char_p, []),
    "headroom_python_heeds_signals": (c.c_int, []),
    "headroom_context_create": (c.c_int, [c.POINTER(ContextSettings), c.POINTER(c.c_void_p)]),
    "headroom_context_destroy": (None, [c.c_void_p]),
    "headroom_context_threads": (c.c_int, [c.c_void_p]),
    "headroom_memory_allocate": (c.c_int, [c.c_void_p, c.c_size_t, c.POINTER(Memory)]),
    "headroom_memory_free": (None, [c.c_void_p, c.POINTER(Memory)]),
    "headroom_memory_write": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "headroom_memory_read": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t, c.c_void_p]),
    "headroom_attention_workspace_bytes": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.c_int, _SIZE]),
    "headroom_attention_saved_bytes": (c.c_int, [c.c_void_p, c.POINTER(Problem), _SIZE]),
    "headroom_attention_forward": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.POINTER(ForwardArguments)]),
    "headroom_attention_backward": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.POINTER(BackwardArguments)]),
    "headroom_attention_forward_call_create": (
        c.c_int,
        [c.c_void_p, c.POINTER(Problem), c.POINTER(ForwardArguments), c.POINTER(c.c_void_p)],
    ),
    "headroom_attention_backward_call_create": (
        c.c_int,
        [c.c_void_p, c.POINTER(Problem), c.POINTER(BackwardArguments), c.POINTER(c.c_void_p)],
    ),
    "headroom_attention_call_run": (c.c_int, [c.c_void_p, c.c_char_p, c.c_int32, c.c_void_p]),
    "headroom_attention_call_destroy": (None, [c.c_void_p]),
    "headroom_forecast": (c.c_int, [c.c_char_p, c.POINTER(c.c_void_p)]),
    "headroom_plan": (c.c_int, [c.c_char_p, c.POINTER(c.c_void_p)]),
    "headroom_memory_as_pytorch": (c.c_int, [c.c_char_p, c.POINTER(c.c_void_p)]),
    "headroom_text_free": (None, [c.c_void_p]),
    "headroom_comm_create": (c.c_int, [c.POINTER(CommSettings), c.POINTER(c.c_void_p)]),
    "headroom_comm_destroy": (None, [c.c_void_p]),
    "headroom_comm_end": (None, [c.c_void_p, c.c_char_p]),
    "headroom_comm_rank": (c.c_int, [c.c_void_p]),
    "headroom_comm_ranks": (c.c_int, [c.c_void_p]),
    "headroom_comm_join_gpu": (c.c_int, [c.c_void_p, c.POINTER(CommGpu)]),
    "headroom_comm_on_stream": (c.c_int, [c.c_void_p, c.c_void_p]),
    "headroom_comm_gpu_route": (c.c_char_p, [c.c_void_p]),
    "headroom_comm_later": (c.c_int, [c.c_void_p, c.c_void_p, c.POINTER(c.c_int64)]),
    "headroom_comm_wait": (c.c_int, [c.c_void_p, c.c_int64, c.c_void_p]),
    "headroom_comm_done": (c.c_int, [c.c_void_p, c.c_int64, c.POINTER(c.c_int32)]),
    "headroom_comm_carries": (c.c_int, [c.c_void_p, c.c_char_p]),
    "headroom_comm_barrier": (c.c_int, [c.c_void_p]),
    "headroom_comm_broadcast": (c.c_int, [c.c_void_p, c.c_void_p, c.c_int64, c.c_int, c.c_int32]),
    "headroom_comm_all_reduce": (c.c_int, [c.c_void_p, c.c_void_p, c.c_int64, c.c_int, c.c_int]),
    "headroom_comm_all_gather": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64, c.c_int]),
    "headroom_comm_reduce_scatter": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64, c.c_int, c.c_int]),
    "headroom_comm_exchange": (c.c_int, [c.c_void_p, c.c_void_p, c.c_void_p, c.c_int64, c.c_int]),
    "headroom_attention_explain": (c.c_int, [c.c_void_p, c.POINTER(Problem), c.c_char_p, c.c_size_t, _SIZE]),
}


def _name_of_library():
    asked = os.environ.get("HEADROOM_LIBRARY")
    if asked:
        return asked
    inside = os.path.join(os.path.dirname(__file__), "lib", "libheadroom.so")
    return inside if os.path.exists(inside) else "libheadroom.so"


@functools.lru_cache(maxsize=None)
def library():
    """The library, loaded once: $HEADROOM_LIBRARY, else the one inside this package, else where the system looks."""
    name = _name_of_library()
    try:
        loaded = c.CDLL(name)
    except OSError as refusal:
        raise ImportError(
            f"libheadroom cannot be loaded: {refusal}. pip install the wheel, or build it (make build) and set HEADROOM_LIBRARY "
            "to its path"
        ) from None
    for function, (result, arguments) in _SIGNATURES.items():
        entry = getattr(loaded, function, None)
        if entry is None:
            version = getattr(loaded, "headroom_version", None)
            if version is None:
                raise ImportError(f"{name} is not libheadroom: it has no headroom_version. Look at HEADROOM_LIBRARY")
            version.restype = c.c_char_p
            raise ImportError(f"{name} is libheadroom {version().decode()}, too old for this package: it has no {function}")
        entry.restype, entry.argtypes = result, arguments
    loaded.headroom_python_heeds_signals()
    return loaded


def python_attention():
    """(attend, forward, backward, keep, set_up) of src/capi/python_attention.cpp: functions of Python that are written in C++."""
    make = c.PYFUNCTYPE(c.py_object)(("headroom_python_attention", library()))  # with Python's lock held
    return make()


_INTERRUPTED = 7


def failed(status):
    """The exception of a call that failed. A signal's handler that ended the call has raised its own: KeyboardInterrupt, as a rule."""
    if status == _INTERRUPTED:
        c.PYFUNCTYPE(None)(("headroom_python_raise", library()))()
    text = library().headroom_last_error().decode("utf-8", "replace")
    text = re.sub(r"\bcu_([qk])\b", r"cu_seqlens_\1", text)  # as Python's callers call them
    return Error(library().headroom_status_name(status).decode(), text)


def call(name, *arguments):
    status = getattr(library(), name)(*arguments)
    if status != 0:
        raise failed(status)


def version() -> str:
    """The version of the library that was loaded, as "0.1.0"."""
    return library().headroom_version().decode()


def _device(text):
    """("cpu", 0) of "cpu", ("cuda", 1) of "cuda:1"."""
    kind, colon, index = str(text).partition(":")
    numbered = index.isascii() and index.isdigit() and len(index) < 6
    if kind not in ("cpu", "cuda") or bool(colon) != numbered:
        raise ValueError(f"device '{text}': cpu, cuda or cuda:N")
    return kind, int(index or 0)


def whole(value, name, low, high, meaning):
    """`value` as an int between low and high, else one line: C's numbers would take the low bits of any other."""
    try:
        number = None if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = None
    if number is None:
        raise TypeError(f"{name} is {value!r}: a whole number, {meaning}")
    if not low <= number <= high:
        raise ValueError(f"{name} is {number}: a whole number from {low} to {high}, {meaning}")
    return number


class Context:
    """Where the work is done: "cpu" with `threads` (0: every core this process may use), or "cuda:N".

    Any number of threads may use one. After a fork the child may go on with a CPU context; a CUDA context refuses there.
    """

    def __init__(self, threads: int = 0, device: str = "cpu") -> None:
        kind, index = _device(device)
        threads = whole(threads, "threads", 0, 4096, "0 for every core; a device is said by its name, Context(device='cpu')")
        settings = ContextSettings(c.sizeof(ContextSettings), CUDA if kind == "cuda" else CPU, index, threads)
        made = c.c_void_p()
        call("headroom_context_create", c.byref(settings), c.byref(made))
        self._as_parameter_ = made
        self.device = f"cuda:{index}" if kind == "cuda" else "cpu"
        # Not at the interpreter's exit: a daemon thread may be in a call, and the process gives everything back anyway.
        weakref.finalize(self, library().headroom_context_destroy, made).atexit = False

    @property
    def threads(self) -> int:
        """Threads of the CPU's pool."""
        return int(library().headroom_context_threads(self))

    def __repr__(self) -> str:
        return f"gpu_headroom.Context(device='{self.device}', threads={self.threads})"


_contexts = {}
_making = threading.Lock()
os.register_at_fork(after_in_child=lambda: globals().__setitem__("_making", threading.Lock()))


def default_context(device: str = "cpu") -> Context:
    """The context that calls without one use: one per device and process."""
    found = _contexts.get(device)
    if found is None:
        with _making:
            found = _contexts.get(device)
            if found is None:
                found = _contexts[device] = Context(device=device)
    return found


def owned_text(name, *arguments):
    """The text that a C call hands out, as a str; the library's copy is given back."""
    text = c.c_void_p()
    call(name, *arguments, c.byref(text))
    try:
        return c.string_at(text).decode()
    finally:
        library().headroom_text_free(text)


class Owned:
    """Memory of a context's device that lives as long as this object."""

    def __init__(self, context, size):
        memory = Memory()
        call("headroom_memory_allocate", context, size, c.byref(memory))
        self.lent = Memory(memory.data, memory.bytes)
        self.bytes = size
        self.context = context  # outlives the memory
        weakref.finalize(self, _free, context, memory).atexit = False


def _free(context, memory):
    library().headroom_memory_free(context, c.byref(memory))
