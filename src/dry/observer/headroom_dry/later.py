"""Results that are computed when they are read: large ones, and most never are."""
import ctypes

from . import library
from .again import Unknown
from .operations import COPIED, MOST, NUMBERS

MOST_LATER = 64  # results
MOST_HELD = 256 << 20  # bytes of the host that are kept of large copies to the card
LAZY = ctypes.create_string_buffer(b"\x5a", 1)


class Lazy:
    """An operation on the CPU whose result was not needed yet: its arguments as they were."""
    __slots__ = "run args kwargs state view begin end done held".split()

    def __init__(self):
        self.done = None
        self.held = 0  # bytes of the host that it keeps


class Later:
    def __init__(self):
        self.later = {}  # by address
        self.whole = {self.torch.int32, self.torch.int64}
        self.compute_now = self.shell(lambda _, lazy: self.store_lazy(_, lazy))

    def defer(self, op, bare, args, kwargs, t):
        """True: `t` can be computed on demand."""
        call = self.Call(later=True)
        lazy = Lazy()
        try:
            lazy.args = [self.on_cpu(x, call) for x in args]
            lazy.kwargs = {k: self.on_cpu(x, call) for k, x in kwargs.items() if k != "pin_memory"}
        except Unknown:
            return False
        if not call.state:
            return False
        lazy.run, lazy.state = op._handle.redispatch_boxed, call.state
        self.add_later(lazy, t)
        return True

    def in_place(self, op, args, kwargs):
        """What an operation gives that writes to its first argument, on demand; None: it is not known."""
        call = self.Call(later=True)
        lazy, run = Lazy(), op._handle.redispatch_boxed
        lazy.args = [self.on_cpu(x, call) for x in args]
        lazy.kwargs = {k: self.on_cpu(x, call) for k, x in kwargs.items()}
        lazy.run, lazy.state = lambda keys, first, *rest, **kw: run(keys, first.clone(), *rest, **kw), call.state
        return lazy if call.state else None

    def conversion(self, to, source):
        """What a copy that converts to or from many floats gives, on demand; None: it is not known."""
        call, shape, dtype = self.Call(later=True), to.shape, to.dtype
        lazy = Lazy()
        lazy.args, lazy.kwargs, lazy.run = [self.on_cpu(source, call)], {}, lambda _, value: value.to(dtype).expand(shape)
        lazy.state = call.state
        return lazy if call.state else None

    def whole_numbers(self, to, source):
        """Many whole numbers of the host on their way to the card: indices, of which a program may ask for the largest. None: too many to keep."""
        size = source.numel() * source.element_size()
        if to.dtype not in self.whole or source.dtype not in self.whole or to.shape != source.shape or to.numel() > MOST or type(source) not in self.plain:
            return None
        if not self.on_card(to) or self.span(to) != to.numel() or size + sum(lazy.held for lazy in self.later.values()) > MOST_HELD:
            return None
        lazy, dtype = Lazy(), to.dtype
        lazy.args, lazy.kwargs, lazy.state, lazy.held = [source.clone()], {}, 1, size
        lazy.run = lambda _, value: value.to(dtype)
        return lazy

    def defer_fill(self, t, value, state):
        if t.dtype.is_floating_point and len(self.later) >= MOST_LATER // 2:
            self.prune()
            if len(self.later) >= MOST_LATER // 2:  # others are worth more than one more tensor of zeros
                return
        lazy = Lazy()
        full, shape, dtype = self.torch.full, t.shape, t.dtype
        lazy.args, lazy.kwargs, lazy.state, lazy.run = [], {}, state, lambda _: full(shape, value, dtype=dtype, device="cpu")
        self.add_later(lazy, t)

    def add_later(self, lazy, t):
        lazy.view = t.shape, t.stride(), t.dtype, self.span(t)
        lazy.begin = t.data_ptr()
        if t.dtype.is_floating_point:
            self.floats.add(self.begins(t))
        lazy.end = lazy.begin + lazy.view[3] * t.element_size()
        if len(self.later) >= MOST_LATER:
            self.prune()
        library.forget(lazy.begin, lazy.end - lazy.begin)
        library.know(lazy.begin, 1, LAZY)  # goes with the block, or with what is written over it
        self.later[lazy.begin] = lazy

    def alive(self, lazy):
        held = self.scratch(1)
        return library.known(lazy.begin, 1, held) == 1 and held[0] == b"\x5a"

    def prune(self):
        for begin, lazy in list(self.later.items()):
            if not self.alive(lazy):
                del self.later[begin]
        while len(self.later) >= MOST_LATER:
            begin, lazy = next(iter(self.later.items()))
            del self.later[begin]
            library.forget(begin, lazy.end - begin)

    def computed(self, lazy):
        if lazy.done is None:
            args = [self.computed(x) if type(x) is Lazy else [self.computed(y) if type(y) is Lazy else y for y in x] if type(x) is list else x
                    for x in lazy.args]
            kwargs = {k: self.computed(x) if type(x) is Lazy else x for k, x in lazy.kwargs.items()}
            run = self.with_number(lazy.run) if any(type(x) in NUMBERS for x in args) else lazy.run
            lazy.done = run(self.cpu, *args, **kwargs)
            lazy.args = lazy.kwargs = None
        return lazy.done

    def settle(self, t):
        """What `t` has of such results is computed now."""
        if not self.later:
            return
        begin = t.data_ptr()
        end = begin + self.span(t) * t.element_size()
        for at, lazy in list(self.later.items()):
            if at < end and begin < lazy.end:
                del self.later[at]
                if self.alive(lazy):
                    self.compute_now(lazy.begin, lazy)

    def let_go(self, t):
        """`t` is overwritten: results of which nothing is left are not computed first, nor large ones of which a part is left."""
        if not self.later:
            return
        begin, n = t.data_ptr(), self.span(t)
        end, is_whole = begin + n * t.element_size(), n == t.numel()
        for at, lazy in list(self.later.items()):
            if at < end and begin < lazy.end and (is_whole and begin <= at and lazy.end <= end or lazy.view[3] > COPIED):
                del self.later[at]
                if self.alive(lazy):
                    library.forget(at, lazy.end - at)

    def store_lazy(self, name, lazy):
        shape, stride, dtype, n = lazy.view
        library.forget(lazy.begin, lazy.end - lazy.begin)
        value = self.computed(lazy)
        if value.shape == shape:
            held = self.torch.empty(n, dtype=dtype, device="cpu")
            self.torch.as_strided(held, shape, stride, 0).copy_(value)
            self.store_as(lazy.state)(lazy.begin, lazy.end - lazy.begin, held.data_ptr())
