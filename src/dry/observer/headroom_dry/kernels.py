"""The kernels at BackendSelect, by kind of operation: what computes, copies, reads a count of its own, searches, forgets, or reads a number."""
import math

from . import computing, library
from .again import inside
from .choices import CHOICE, GUESS, WORDS
from .computing import each_of
from .later import Lazy
from .operations import FEW, FLOATS, FLOATS_LATER, KNOWN, MOST, NUMBERS, WRITTEN
from .rules import DIFFERENCES, DRAWS, EXPERTS, MASKS


def is_of_floats(*tensors):
    return any(t.dtype.is_floating_point for t in tensors)


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
        """copy_: plain copies are the library's; what converts, or has gaps, is done here. Reads of the card by a copy are counted by line."""
        after, op = self.after, None

        @self.shell
        def convert(name, to, source):
            if not self.wanted(to) or not self.on_card(to) or to.requires_grad and to.numel() > FEW:
                return None
            if type(source) in NUMBERS:
                return self.torch.tensor(source, device="cpu"), 1
            if source.is_cuda and source.numel() <= MOST and self.on_card(source) and (to.numel() <= FEW or self.all_hopeful((source,))):
                return self.twin(source)
            return None

        @self.shell
        def convert_later(name, to, source):
            if self.on_card(to) and self.on_card(source) and self.span(to) == to.numel() and not to.requires_grad and self.all_hopeful((source,)):
                return self.conversion(to, source)
            return None

        @self.shell
        def come(name, to, source):
            return None if source.is_cuda else self.whole_numbers(to, source)

        @self.shell
        def follow(name, to, source):
            self.mask_is_copied(to, source)
            self.bounds_are_copied(to, source)

        @self.shell
        def finish(name, to, made):
            self.drop(to)
            if type(made) is Lazy:
                self.add_later(made, to)
            elif made and made[1]:
                self.keep(to, made[0].expand(to.shape), made[1])

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            to, source = args[0], args[1]
            if self.of_masks and to.is_cuda:
                self.mask_is_written(to)
            if type(source) in NUMBERS:
                made = convert(base, to, source) if to.is_cuda else None
                out = self.with_number(op._handle.redispatch_boxed)(keyset & after, *args, **kwargs)
                if made:
                    finish(base, to, made)
                return out
            if getattr(inside, "now", False):
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if self.while_undrawn is not None:
                if not to.is_cuda and self.put_off_or_fulfil(to, source):
                    return to
                self.look_after()
            if not (to.is_cuda or source.is_cuda):
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            hopeful = to.is_cuda and source.is_cuda and self.all_hopeful((source,))
            if hopeful and FLOATS < to.numel() <= FLOATS_LATER and is_of_floats(to, source):
                made = convert_later(base, to, source)
                if made:
                    out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
                    finish(base, to, made)
                    return out
            if self.later:
                if source.is_cuda and not hopeful and to.numel() > FEW and self.on_card(to):
                    self.let_go(to)
                for t in (to, source):
                    if self.on_card(t):
                        self.settle(t)
            if not to.is_cuda and not getattr(inside, "told", False):
                with self.unknown_as(self.read(source)):
                    return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if not to.is_cuda:
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if not source.is_cuda or self.is_out_of_sight(to):
                of_a_mask = source.is_cuda and (self.bounds or self.may_follow((source,)))
                self.hope(to)
                made = come(base, to, source) if to.numel() * to.element_size() > KNOWN else None
                out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
                if made:
                    finish(base, to, made)
                if of_a_mask:
                    follow(base, to, source)
                return out
            if to.dtype == source.dtype and to.is_contiguous() and source.is_contiguous() and to.shape == source.shape:
                if self.is_hopeful(source):
                    self.hope(to)
                out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
                if self.of_masks or self.bounds or self.rules.nearly and to.dtype is self.torch.bool:
                    follow(base, to, source)
                return out
            made = convert(base, to, source) if hopeful or to.numel() <= FEW else None
            out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            if self.on_card(to):
                finish(base, to, made)
                if not (made and made[1]) and self.on_card(source):
                    follow(base, to, source)
            return out
        return kernel

    def answer_count(self, count, state):
        """The next read of a count, of either width, gets this one."""
        for kind in self.torch.int32, self.torch.int64:
            one = self.torch.tensor([count], dtype=kind, device="cpu")
            library.answer(one.data_ptr(), one.element_size(), int(state == 1))

    def reading(self, base, overload, bare):
        """Operations that read a count inside themselves: the count is computed first and given to that read."""
        torch, after, op = self.torch, self.after, None

        @self.shell
        def prepare(name, args, kwargs):
            x = args[0]
            if not self.on_card(x):
                return None
            if x.numel() > MOST:  # how many there are is a number; which they are, nothing asks
                if bare == "equal":
                    return None
                if bare == "nonzero":
                    self.answer_count(self.rules.how_many(x), 2)
                    return (), 2, MASKS
                among = x.shape[args[1]] if bare == "unique_dim" else x.shape[args[-1] or 0] if bare == "unique_dim_consecutive" else x.numel()
                self.answer_count(1 if self.rules.how == "balanced" else among, 2)
                return (), 2, DIFFERENCES
            args = (x,) + tuple(args[1:])
            made, state, _ = self.again(op, bare, args, {k: v for k, v in kwargs.items() if k != "out"})
            if state == CHOICE and bare == "nonzero":
                made, state, guess = self.mask_of_choices(x, self.twin(x)[0]).nonzero(), GUESS, MASKS
                self.answer_count(made.shape[0], state)
                return [made], state, guess
            of_words = state == CHOICE and bare != "equal" and x.dtype is not torch.bool and bool((self.twin(x)[0] >= WORDS // 2).any())
            if of_words:  # one word stands for all: they may as well differ
                state = 0
            guess = None if state or bare == "equal" else MASKS if bare == "nonzero" or x.dtype is torch.bool else DIFFERENCES
            if bare == "equal":  # reads one bool; of unknown ones the library says that they are equal
                if state:
                    library.answer(bytes([made]), 1, int(state == 1))
                return state and ((), state, None)
            if not state:
                value = self.twin(x)[0] if x.dtype is not torch.bool else None
                if bare == "nonzero":
                    made = self.rules.mask(x.shape, self.rules.lacks(x)).nonzero()
                else:  # as if every value were another one, or, where nothing of a mask is true, all the same
                    value = torch.arange(x.numel(), device="cpu").reshape(x.shape).to(x.dtype)
                    made = op(value * 0 if self.rules.how == "balanced" else value, *args[1:], **kwargs)
                state = 2
            made = each_of(made)
            count = made[0].shape[args[1] if bare == "unique_dim" else 0]
            if bare in ("_unique", "_unique2") and x.dtype is torch.bool:  # asks how many are true
                count = int(self.twin(x)[0].sum()) if guess is None else self.rules.how_many(x)
            self.answer_count(count, state)
            return made, state, guess

        @self.shell
        def finish(name, out, prepared):
            library.unanswer()
            if prepared:
                made, state, _ = prepared
                for t, value in zip(each_of(out), made):
                    if self.on_card(t) and self.wanted(t) and t.shape == value.shape:
                        self.keep(t, value, state)

        def kernel(keyset, *args, **kwargs):
            nonlocal op
            if op is None:
                op = self.overload(base, overload)
            if not args[0].is_cuda or getattr(inside, "now", False):
                if self.undrawn:
                    self.fulfil(args)
                return op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            prepared = prepare(base, args, kwargs)
            if not prepared or prepared[1] >= GUESS:
                self.count(args[0])
                self.say_guess_of_size(prepared[2] if prepared else None, prepared and prepared[1] == CHOICE)
            inside.told = True  # its own reads need no more words
            try:
                out = op._handle.redispatch_boxed(keyset & after, *args, **kwargs)
            except BaseException:
                library.unanswer()
                raise
            finally:
                inside.told = False
            finish(base, out, prepared)
            return out
        return kernel

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
