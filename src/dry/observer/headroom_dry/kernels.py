"""The kernels at BackendSelect, by kind of operation: what computes, copies, reads a count of its own, searches, forgets, or reads a number."""
import math

from . import computing, copies, count_reads, library
from .again import inside
from .computing import each_of
from .operations import FEW, FLOATS_LATER, MOST, NUMBERS, WRITTEN
from .rules import DRAWS, EXPERTS, MASKS
from .weights import CHANGING


class Kernels:
    def __init__(self, torch):
        self.after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)

    def computing(self, base, overload, bare):
        return computing.kernel_of(self, base, overload, bare)

    def scaling(self, base, overload, bare):
        """A scaler of the loss: how many steps it may skip on a card, one after another, until its scale is 1."""
        kernel, said = self.computing(base, overload, bare), False

        @self.shell
        def say(name, args):
            scale, backoff = args[0], args[4]
            held, state = self.twin(scale) if self.on_card(scale) else (scale, 1)
            if state:
                library.mark("scaled", "", max(1, math.ceil(math.log2(max(float(held), 2.0)) / -math.log2(backoff))))

        def scale(keyset, *args, **kwargs):
            nonlocal said
            if not said:
                said = True
                say(base, args)
            return kernel(keyset, *args, **kwargs)
        return scale

    def targets(self, args, kwargs, writes, names):
        return [kwargs[n] if n in kwargs else args[i] for i, n in zip(writes, names) if n in kwargs or i < len(args)]

    def copying(self, base, overload, bare):
        return copies.kernel_of(self, base, overload)

    def answer_count(self, count, state):
        """The next read of a count, of either width, gets this one."""
        for kind in self.torch.int32, self.torch.int64:
            one = self.torch.tensor([count], dtype=kind, device="cpu")
            library.answer(one.data_ptr(), one.element_size(), int(state == 1))

    def reading(self, base, overload, bare):
        return count_reads.kernel_of(self, base, overload, bare)

    def say_guess_of_size(self, guess, of_choices=False):
        """An operation whose result is as large as a guess says: its own, or those that its input may follow from."""
        rules = self.rules
        guesses = [guess] if guess is not None else [EXPERTS] * rules.routed + [MASKS] * bool(of_choices or rules.agreed or rules.picked or rules.masked or rules.counted)
        for one in guesses or [DRAWS] * rules.drew:
            self.say_routed(one)

    def coalescing(self, base, overload, bare):
        """Sums what a sparse tensor has twice. It reads how many places are different; where that is not known, all of them are."""
        torch, after, op = self.torch, self.after, None

        @self.shell
        def different(name, x):
            places = x._indices()
            held, state = self.twin(places) if self.on_card(places) and places.numel() <= MOST else (None, 0)
            count = torch.unique(held, dim=1).shape[1] if state else places.shape[1]
            if not state:
                self.count(places)
            self.answer_count(count, state)

        def kernel(keyset, x):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            if not x.is_cuda or getattr(inside, "now", False):
                return op._handle.redispatch_boxed(keyset & after, x)
            different(base, x)
            try:
                return op._handle.redispatch_boxed(keyset & after, x)
            finally:
                library.unanswer()
        return kernel

    def searching(self, base, overload, bare):
        """A search for a number puts it on the card, in a form that PyTorch cannot show to Python: it is put there as a tensor."""
        torch, after, op, by_tensor = self.torch, self.after, None, None

        def kernel(keyset, *args, **kwargs):
            nonlocal op, by_tensor
            if op is None:
                op, by_tensor = self.overload(base, overload), self.overload(base, "Tensor")
            args = list(args)
            at = 0 if bare == "bucketize" else 1
            among = args[1 - at]
            if among.is_cuda and type(args[at]) in NUMBERS:
                with torch._C.DisableTorchFunction():
                    args[at] = torch.full((), args[at], dtype=among.dtype, device=among.device)
                return by_tensor._handle.redispatch_boxed(keyset, *args, **kwargs)
            return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
        return kernel

    def forgetting(self, base, overload, bare):
        """What is updated in place: small tensors among it are not known afterwards. Counters of steps are: an optimizer divides by what follows from them."""
        after, op, writes, names, tensors = self.after, None, (), (), ()
        hot = base.startswith("_")  # large ones are looked at only where they may be known
        counts = base == "_foreach_add_" and overload == "Scalar"

        @self.shell
        def counted(name, targets, number):
            return [(t, *self.twin(t)) for t in targets if t.numel() == 1 and self.on_card(t)]

        @self.shell
        def count_on(name, before, number):
            for t, value, state in before:
                if state:
                    self.keep(t, value + number, state)

        def kernel(keyset, *args, **kwargs):
            nonlocal op, writes, names, tensors
            if op is None:
                op = self.overload(base, overload)
                arguments = op._schema.arguments
                writes = [i for i, a in enumerate(arguments) if a.alias_info is not None and a.alias_info.is_write or a.name in WRITTEN.get(base, ())]
                names = [arguments[i].name for i in writes]
                tensors = [i for i, a in enumerate(arguments) if str(a.type) == "Tensor"]
            run = op._handle.redispatch_boxed
            for i in tensors:
                if i < len(args) and type(args[i]) in NUMBERS:
                    run = self.with_number(run)
                    break
            if self.undrawn and not getattr(inside, "now", False):
                if bare in CHANGING and writes == [0] and self.change_later(op, bare, args[0], args[1:], kwargs):
                    return args[0]
                self.fulfil((*args, *kwargs.values()))
            before = counted(base, *args) if counts and len(args) == 2 and not getattr(inside, "now", False) else None
            out = run(keyset & after, *args, **kwargs)
            if not getattr(inside, "now", False):
                for several in self.targets(args, kwargs, writes, names):
                    for t in () if several is None else each_of(several):
                        if self.of_masks:
                            self.mask_is_written(t)
                        n = t.numel()
                        if n <= FEW or (n <= FLOATS_LATER and self.begins(t) in self.floats if hot else n <= MOST):
                            if self.on_card(t):
                                self.drop(t)
                                self.give_up(t)
                if before:
                    count_on(base, before, args[1])
            return out
        return kernel

    def unknown(self, results):
        for t in results:
            if isinstance(t, self.torch.Tensor) and self.wanted(t) and self.on_card(t):
                self.drop(t)

    def clearing(self, base, overload, bare):
        """Results that the operation itself fills with numbers before its kernel writes to them."""
        after, op = self.after, None
        unknown = self.shell(lambda name, out: self.unknown(each_of(out)))

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if not getattr(inside, "now", False):
                unknown(base, out)
            return out
        return kernel

    def scalar(self, base, overload, bare):
        after, op = self.after, None

        def kernel(keyset, x):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            if self.undrawn:
                self.fulfil((x,))
            if x.is_cuda and not getattr(inside, "now", False) and not getattr(inside, "told", False):
                with self.unknown_as(self.read(x)):
                    return op._handle.redispatch_boxed(keyset & after, x)
            return op._handle.redispatch_boxed(keyset & after, x)
        return kernel
