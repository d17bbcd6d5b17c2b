"""Tensors of the card whose values are known, and their twins on the CPU: the library keeps the values by address."""
import array
import ctypes
import threading
import types

from . import library
from .operations import COPIED, FEW, FLOATS, FLOATS_LATER, MOST, MOST_PIECES

_of_thread = threading.local()


def as_it_is(torch):
    """PyTorch's names as they are now. A program may put others in their place: inside DeepSpeed's zero.Init `torch.empty` gives another dtype."""
    now = types.ModuleType("torch")
    now.__dict__.update(torch.__dict__)
    now.__getattr__ = lambda name: getattr(torch, name)  # modules that PyTorch imports when they are asked for
    return now


class Twins:
    def __init__(self, torch):
        self.torch = torch
        self.zeros = None  # view_of_zeros of the last
        self.plain = {torch.Tensor, torch.nn.Parameter, torch.nn.Buffer} if hasattr(torch.nn, "Buffer") else {torch.Tensor, torch.nn.Parameter}

    def on_card(self, t):
        return t.is_cuda and type(t) in self.plain and t.layout is self.torch.strided and not t.is_quantized

    @staticmethod
    def span(t):
        if not t.numel():
            return 0
        n = 1
        for size, stride in zip(t.shape, t.stride()):
            n += (size - 1) * stride
        return n

    def twin(self, t):
        """(a CPU tensor of the same values, 0 unknown, 1 known, 2 guessed, 3 and 4 a word or a choice among unknown numbers)"""
        torch = self.torch
        self.settle(t)
        n = self.span(t)
        held = torch.empty(max(n, 1), dtype=t.dtype, device="cpu")
        state = library.known(t.data_ptr(), n * t.element_size(), held.data_ptr()) if n else 1
        if not state and n > FEW and n == t.numel() and t.dtype.is_floating_point:
            self.give_up(t)
        return torch.as_strided(held, t.shape, t.stride(), 0), state

    @staticmethod
    def store_as(state):
        if state <= 2 or library.choose is None:
            return library.know if state == 1 else library.guess
        return lambda at, bytes, source: library.choose(at, bytes, source, int(state == 3))

    def keep(self, t, value, state):
        """The card's `t` holds `value` from now on."""
        if not t.numel():
            return
        if value.dtype is not t.dtype:
            value = value.to(t.dtype)
        self.hope(t)
        store = self.store_as(state)
        n, size = self.span(t), t.element_size()
        if n == t.numel() and value.stride() == t.stride():
            store(t.data_ptr(), n * size, value.data_ptr())
            return
        if n == t.numel():  # dense, whatever the order of its strides
            held = self.torch.empty(n, dtype=t.dtype, device="cpu")
            self.torch.as_strided(held, t.shape, t.stride(), 0).copy_(value)
            store(t.data_ptr(), n * size, held.data_ptr())
            return
        value = value.contiguous()
        begin, source = t.data_ptr(), value.data_ptr()
        inner, offsets = self.pieces(t)
        if len(offsets) > MOST_PIECES and t.dtype.is_floating_point:
            return
        for k, at in enumerate(offsets):
            store(begin + at * size, inner * size, source + k * inner * size)

    @staticmethod
    def pieces(t, in_order=True):
        """(elements that lie beside each other, where each such piece begins), in the order of a contiguous copy, or each place once in any order."""
        dims = list(zip(t.shape, t.stride()))
        if not in_order:  # of a permuted tensor there are far fewer pieces
            dims = sorted((d for d in dims if d[0] != 1 and d[1]), key=lambda d: -d[1])
        inner, offsets = 1, [0]
        while dims and dims[-1][1] == inner:
            inner *= dims.pop()[0]
        for count, stride in dims:
            offsets = [at + i * stride for at in offsets for i in range(count)]
        return inner, offsets

    def drop(self, t):
        n, size, begin = self.span(t), t.element_size(), t.data_ptr()
        few = t.numel() <= MOST_PIECES and not t.dtype.is_floating_point  # a row, or the diagonal, of a large mask
        if n == t.numel() or n > (MOST if few else COPIED):
            if n:
                library.forget(begin, n * size)
            return
        inner, offsets = self.pieces(t, in_order=False)
        if len(offsets) > MOST_PIECES:
            library.forget(begin, n * size)
            return
        places = array.array("q", offsets)  # in one call: padding has thousands of rows. What lies between stays known
        library.forget_each(begin, places.buffer_info()[0], len(places), size, inner * size)

    def mask_of_ones(self, bare, t):
        """Whether a fill may be `torch.ones(batch, length)`, a mask that is floating until the model asks whether all of it is true."""
        return bare == "fill" and FLOATS < t.numel() <= COPIED and t.dtype.is_floating_point and t.dim() > 1 and not t.requires_grad and self.on_card(t)

    def view_of_zeros(self, bare, t):
        """Where and how a mask of numbers lies that is just filled with zeros: models hide padding by filling in -inf where a mask of bools is true."""
        if bare == "zero" and FLOATS < t.numel() <= COPIED and t.dtype.is_floating_point and t.dim() > 1 and not t.requires_grad and self.on_card(t):
            return t.data_ptr(), t.shape, t.stride(), t.dtype
        return None

    def wanted(self, t):
        return t.numel() <= (FLOATS_LATER if t.dtype.is_floating_point else FEW if t.dtype.is_complex else MOST)

    def scratch(self, bytes):
        held = getattr(_of_thread, "scratch", None)
        if held is None or len(held) < bytes:
            held = _of_thread.scratch = ctypes.create_string_buffer(bytes)
        return held
