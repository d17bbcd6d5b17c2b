"""Arrays of other libraries as views: NumPy's directly, everything else by DLPack. Nothing is copied that the kernels can read in place."""

import ctypes as c
import math
import sys

from . import library as lib

SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}
CODES = {"float32": 0, "bfloat16": 1, "float16": 2, "int32": 3}  # headroom_dtype
FLOATS, NUMBERS, INTEGERS = tuple(SIZES), ("float32",), ("int32",)
FLOATS_IN_WORDS = " or ".join(", ".join(FLOATS).rsplit(", ", 1))
_IN_WORDS = f"{FLOATS_IN_WORDS} (NumPy: ml_dtypes.bfloat16, or its bits as uint16)"


class View:
    """An array's place, shape and strides. `owner` keeps its memory alive."""

    __slots__ = ("data", "dtype", "shape", "stride", "bytes", "device", "owner")

    def __init__(self, data, dtype, shape, stride, size, device, owner):
        self.data, self.dtype, self.shape, self.stride = data, dtype, tuple(shape), tuple(stride)
        self.bytes, self.device, self.owner = size, device, owner

    def readable(self):  # in place, by every kernel
        strides = [s for n, s in zip(self.shape, self.stride) if n > 1]
        last = self.stride[-1] if self.shape and self.shape[-1] > 1 else 1
        repeats = self.device != "cpu" and 0 in strides
        overlaps = len(self.shape) == 4 and self.shape[1] > 1 and self.stride[1] < self.shape[3]
        return last == 1 and min(strides, default=1) >= 0 and not repeats and not overlaps

    def tensor(self):
        rank = len(self.shape)
        t = lib.Tensor(data=self.data or None, dtype=CODES[self.dtype], rank=rank, bytes=self.bytes)
        t.shape[:rank] = self.shape
        t.stride[:rank] = self.stride
        return t


def _numpy():
    try:
        import numpy
    except ImportError:
        raise ImportError("NumPy is not installed: attention on arrays needs it (pip install numpy)") from None
    return numpy


def _must_be(served):
    return f"it must be {served[0]}" if len(served) == 1 else f"served are {_IN_WORDS}"


def _name_of_dtype(dtype):
    return "bfloat16" if dtype.name == "uint16" else dtype.name


def _of_numpy(x, name, served=FLOATS):
    np = sys.modules["numpy"]
    if isinstance(x, np.ma.MaskedArray):
        raise TypeError(f"{name} is a masked array, whose mask attention does not read: fill it, as {name}.filled(0)")
    if not x.dtype.isnative:
        raise TypeError(f"{name} is stored big-endian ({x.dtype.str}): pass {name}.astype({name}.dtype.newbyteorder('='))")
    dtype = _name_of_dtype(x.dtype)
    if dtype not in served:
        raise TypeError(f"{name} is {x.dtype}, {_must_be(served)}")
    if x.ndim > 4:
        raise ValueError(f"{name} has {x.ndim} dimensions, at most 4 are served")
    if any(s % x.itemsize for s in x.strides) or x.ctypes.data % x.itemsize:
        x = np.array(x)  # not on whole elements: a field of a structured array
    root = x
    while getattr(root, "base", None) is not None and isinstance(root.base, np.ndarray):
        root = root.base
    address, end = x.ctypes.data, _end(root)
    inside = end >= address and address >= root.ctypes.data  # negative strides put a root's data behind its beginning
    size = end - address if inside and x.size else 0
    return View(address, dtype, x.shape, [s // x.itemsize for s in x.strides], size, "cpu", x)


def _end(x):
    last = sum((n - 1) * s for n, s in zip(x.shape, x.strides) if s > 0) if x.size else 0
    return x.ctypes.data + last + (x.itemsize if x.size else 0)


class _Device(c.Structure):
    _fields_ = [("type", c.c_int32), ("index", c.c_int32)]


class _DType(c.Structure):
    _fields_ = [("code", c.c_uint8), ("bits", c.c_uint8), ("lanes", c.c_uint16)]


class _DLTensor(c.Structure):
    _fields_ = [
        ("data", c.c_void_p), ("device", _Device), ("ndim", c.c_int32), ("dtype", _DType),
        ("shape", c.POINTER(c.c_int64)), ("strides", c.POINTER(c.c_int64)), ("byte_offset", c.c_uint64),
    ]  # fmt: skip


_dlpack_dtypes = {(2, 32): "float32", (2, 16): "float16", (4, 16): "bfloat16", (1, 16): "bfloat16", (0, 32): "int32"}
_dlpack_devices = {1: "cpu", 2: "cuda", 3: "cpu", 13: "cuda"}  # CPU, CUDA, pinned, managed
_pointer_of = c.pythonapi.PyCapsule_GetPointer
_pointer_of.restype, _pointer_of.argtypes = c.c_void_p, [c.py_object, c.c_char_p]


def _of_dlpack(x, name, stream, served=FLOATS):
    kind, index = x.__dlpack_device__()
    if int(kind) not in _dlpack_devices:
        raise TypeError(f"{name} is on a device of DLPack type {int(kind)}; served are the CPU and CUDA devices")
    on_gpu = _dlpack_devices[int(kind)] == "cuda"
    try:
        capsule = x.__dlpack__(stream=stream) if on_gpu else x.__dlpack__()
    except (BufferError, RuntimeError) as refusal:
        if getattr(x, "requires_grad", False):
            raise TypeError(
                f"{name} requires gradients, and this call makes none for torch: use gpu_headroom.torch.attention, or {name}.detach()"
            ) from None
        raise TypeError(f"{name}: {type(x).__name__} does not hand out its memory ({refusal})") from None
    t = _DLTensor.from_address(_pointer_of(capsule, b"dltensor"))
    dtype = _dlpack_dtypes.get((t.dtype.code, t.dtype.bits)) if t.dtype.lanes == 1 else None
    if dtype not in served:
        raise TypeError(f"{name} is {getattr(x, 'dtype', 'of another dtype')}, {_must_be(served)}")
    if t.ndim > 4:
        raise ValueError(f"{name} has {t.ndim} dimensions, at most 4 are served")
    shape = t.shape[: t.ndim]
    if t.strides:
        stride = t.strides[: t.ndim]
    else:
        stride = [math.prod(shape[i + 1 :]) for i in range(t.ndim)]
    device = f"cuda:{index}" if on_gpu else "cpu"
    # The capsule is never consumed: its own end, with this view, gives the memory back.
    return View((t.data or 0) + t.byte_offset, dtype, shape, stride, 0, device, (x, capsule))


def view(x, name, stream=None, served=FLOATS):
    """A View of an array, or a TypeError that says what is served."""
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        return _of_numpy(x, name, served)
    if hasattr(x, "__dlpack__") and hasattr(x, "__dlpack_device__"):
        return _of_dlpack(x, name, stream, served)
    np = _numpy()
    if hasattr(x, "__array_interface__"):
        return _of_numpy(np.asarray(x), name, served)
    try:
        return _of_numpy(np.asarray(memoryview(x)), name, served)
    except TypeError as refusal:
        if isinstance(x, (bytes, bytearray, memoryview)) or "served are" in str(refusal):
            raise
        raise TypeError(f"{name}: a {type(x).__name__} is not an array that can be viewed without a copy") from None


def fingerprint(x):
    """What a change of `x` shows in: a tensor's count of changes, an array's elements here and there; None where nothing does."""
    if library_of(x) == "torch":
        return None if x.is_inference() else x._version
    if isinstance(x, list):
        return repr(x)
    numpy = sys.modules.get("numpy")
    if numpy is None or library_of(x) == "jax":
        return None
    if isinstance(x, memoryview) or hasattr(x, "__array_interface__"):
        x = numpy.asarray(x)
    if not isinstance(x, numpy.ndarray):
        return None
    if x.size <= 4096:
        return x.tobytes()
    steps = [max(1, -(-n // most)) for n, most in zip(x.shape, (8, 128, 4, 2))]  # few enough to cost microseconds
    return x[tuple(slice(None, None, step) for step in steps)].tobytes() + x[(slice(-1, None),) * x.ndim].tobytes()


def make_read_only(x):
    numpy = sys.modules.get("numpy")
    if numpy is not None and isinstance(x, numpy.ndarray):
        x.flags.writeable = False


def library_of(x):
    """The name of the package that an array belongs to."""
    root = type(x).__module__.partition(".")[0]
    return {"jaxlib": "jax"}.get(root, root)


def stream_of(x, device):
    """(the stream for the kernels, what DLPack's producer is told)."""
    if device == "cpu":
        return None, None
    package = library_of(x)
    if package == "torch":
        pointer = sys.modules["torch"].cuda.current_stream(int(device[5:])).cuda_stream
    elif package == "cupy":
        pointer = sys.modules["cupy"].cuda.get_current_stream().ptr
    else:
        pointer = 0  # the default stream; `settle` waits for it
    return pointer or None, pointer or 1  # 1: DLPack's word for the legacy default stream


def empty(like, dtype, shape, device):
    """A new array of the same library as `like`; dtype None: that of `like`."""
    package = library_of(like)
    if package == "torch":
        torch = sys.modules["torch"]
        return torch.empty(shape, dtype=getattr(torch, dtype) if dtype else like.dtype, device=like.device)
    if package == "cupy":
        return sys.modules["cupy"].empty(shape, dtype or like.dtype)
    if package == "jax":  # a new buffer, which no other code has seen, is filled in place
        jax = sys.modules["jax"]
        with jax.default_device(next(iter(like.devices()))):
            return jax.block_until_ready(jax.numpy.zeros(shape, dtype or like.dtype))
    if device != "cpu":
        raise TypeError(f"a {type(like).__name__} on {device}: outputs are made for arrays of torch, CuPy and JAX")
    np = _numpy()
    of = like.dtype if dtype is None and isinstance(like, np.ndarray) else dtype
    if of is None:
        of = view(like, "q").dtype
    return np.empty(shape, np.uint16 if isinstance(of, str) and of == "bfloat16" else of)


def contiguous(x, name, served=FLOATS):
    """A copy of `x` in order, for arrays that no kernel reads in place: expanded, reversed or transposed ones."""
    package = library_of(x)
    if package == "torch":
        torch = sys.modules["torch"]
        return x.detach().clone(memory_format=torch.contiguous_format)
    if package == "cupy":
        return sys.modules["cupy"].array(x, order="C", copy=True)
    if package == "jax":
        return sys.modules["jax"].numpy.array(x, copy=True)
    v = view(x, name, None, served)
    if v.device != "cpu" or not hasattr(v.owner, "flags"):
        raise TypeError(f"{name} does not lie in order, and a {type(x).__name__} cannot be copied here: pass a contiguous one")
    return _numpy().array(v.owner, order="C", copy=True)


def small(x, name, dtype, shape, device, stream=None):
    """A View of a list of numbers, in order: of the array itself, or of a copy. A list of Python's is taken on the CPU."""
    if device == "cpu" and isinstance(x, (list, tuple)):
        x = _numpy().array(x, dtype)
    served = INTEGERS if dtype == "int32" else NUMBERS
    v = view(x, name, stream, served)
    if v.device != device:
        raise ValueError(f"{name} is on {v.device}, the context is {device}'s")
    if len(v.shape) == len(shape) - 1 and shape[0] == 1:  # without the dimension of a batch of 1
        v.shape, v.stride = (1, *v.shape), (0, *v.stride)
    if v.shape != tuple(shape):
        raise ValueError(f"{name} has the shape {v.shape}, expected {tuple(shape)}")
    in_order = [math.prod(shape[i + 1 :]) for i in range(len(shape))]
    if any(n > 1 and s != want for n, s, want in zip(v.shape, v.stride, in_order)):
        v = view(contiguous(x, name, served), name, stream, served)
        v.shape = tuple(shape)
    v.stride = tuple(in_order)
    return v


def shape_of(x, name):
    """The shape of a list of integers, of Python's or of an array."""
    if isinstance(x, (list, tuple)):
        x = _numpy().array(x)
    return view(x, name, 1, INTEGERS).shape if not hasattr(x, "shape") else tuple(x.shape)


def one_for_each(numbers, batch, room):
    """`numbers` as an array of `batch` integers from 0 to `room`, or one number for all of them as a list. On a GPU they are not checked."""
    if isinstance(numbers, int) and not isinstance(numbers, bool):
        if not 0 <= numbers <= room:
            raise ValueError(f"lengths is {numbers}, the cache has room for {room}")
        return [numbers] * batch
    shape = shape_of(numbers, "lengths")
    if shape != (batch,):
        raise ValueError(f"lengths has the shape {shape}, expected one number, or {batch}")
    kind = str(numbers.dtype) if hasattr(numbers, "dtype") else _numpy().array(numbers).dtype.name
    if "int" not in kind:
        raise TypeError(f"lengths is {kind}, it must be whole numbers")
    if library_of(numbers) in ("builtins", "numpy") or (library_of(numbers) == "torch" and numbers.device.type == "cpu"):
        for b, n in enumerate(numbers.tolist() if hasattr(numbers, "tolist") else numbers):
            if not 0 <= n <= room:
                raise ValueError(f"lengths[{b}] is {n}, the cache has room for {room}")
    return numbers


def from_zero(like, ends):
    """int32 [batch, 2]: 0 and each of `ends`, as arrays of the library of `like`."""
    package = library_of(like)
    if package == "torch":
        torch = sys.modules["torch"]
        ends = torch.as_tensor(ends, dtype=torch.int32, device=like.device).reshape(-1)
        return torch.stack([torch.zeros_like(ends), ends], 1)
    np = {"cupy": lambda: sys.modules["cupy"], "jax": lambda: sys.modules["jax"].numpy}.get(package, _numpy)()
    ends = np.asarray(ends).astype("int32").reshape(-1)
    return np.stack([np.zeros_like(ends), ends], 1)


def readable(x, name, stream=None):
    """A View that every kernel can read: of the array itself, or of a copy where its strides are no kernel's."""
    v = view(x, name, stream)
    return v if v.readable() else view(contiguous(x, name), name, stream)
