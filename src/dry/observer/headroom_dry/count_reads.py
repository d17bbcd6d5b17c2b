"""Operations that read a count inside themselves (nonzero, unique, equal): the count is computed first and given to that read."""
from . import library
from .again import inside
from .choices import CHOICE, GUESS, WORDS
from .computing import each_of
from .operations import MOST
from .rules import DIFFERENCES, MASKS


class CountRead:
    def __init__(self, values, base, overload, bare):
        self.values, self.base, self.overload, self.bare, self.op = values, base, overload, bare, None
        self.prepare, self.keep = values.shell(self._prepare), values.shell(self._keep)

    def begin(self):
        self.op = self.values.overload(self.base, self.overload)

    def _prepare(self, name, args, kwargs):
        """(what is made, its state, the guess that it follows from); None where nothing is known."""
        values, bare, x = self.values, self.bare, args[0]
        if not values.on_card(x):
            return None
        if x.numel() > MOST:
            return self.only_how_many(x, args)
        made, state, _ = values.again(self.op, bare, args, {k: v for k, v in kwargs.items() if k != "out"})
        if bare == "equal":  # reads one bool; of unknown ones the library says that they are equal
            if state:
                library.answer(bytes([made]), 1, int(state == 1))
            return state and ((), state, None)
        if state == CHOICE and bare == "nonzero":
            made = values.mask_of_choices(x, values.twin(x)[0]).nonzero()
            values.answer_count(made.shape[0], GUESS)
            return [made], GUESS, MASKS
        guess = None
        if not state or state == CHOICE and self.is_of_words(x):
            made, state, guess = self.guessed(x, args, kwargs), 2, MASKS if bare == "nonzero" or x.dtype is values.torch.bool else DIFFERENCES
        made = each_of(made)
        values.answer_count(self.count_of(made, x, args, guess), state)
        return made, state, guess

    def only_how_many(self, x, args):
        """Of a large tensor: how many there are is a number; which they are, nothing asks."""
        values, bare = self.values, self.bare
        if bare == "equal":
            return None
        if bare == "nonzero":
            values.answer_count(values.rules.how_many(x), 2)
            return (), 2, MASKS
        among = x.shape[args[1]] if bare == "unique_dim" else x.shape[args[-1] or 0] if bare == "unique_dim_consecutive" else x.numel()
        values.answer_count(1 if values.rules.how == "balanced" else among, 2)
        return (), 2, DIFFERENCES

    def is_of_words(self, x):
        """One word stands for all: they may as well differ."""
        return x.dtype is not self.values.torch.bool and bool((self.values.twin(x)[0] >= WORDS // 2).any())

    def guessed(self, x, args, kwargs):
        """As if every value were another one, or, where nothing of a mask is true, all the same."""
        values, torch = self.values, self.values.torch
        if self.bare == "nonzero":
            return values.rules.mask(x.shape, values.rules.lacks(x)).nonzero()
        value = torch.arange(x.numel(), device="cpu").reshape(x.shape).to(x.dtype)
        return self.op(value * 0 if values.rules.how == "balanced" else value, *args[1:], **kwargs)

    def count_of(self, made, x, args, guess):
        if self.bare in ("_unique", "_unique2") and x.dtype is self.values.torch.bool:  # asks how many are true
            return int(self.values.twin(x)[0].sum()) if guess is None else self.values.rules.how_many(x)
        return made[0].shape[args[1] if self.bare == "unique_dim" else 0]

    def _keep(self, name, out, prepared):
        library.unanswer()
        if prepared:
            made, state, _ = prepared
            for t, value in zip(each_of(out), made):
                if self.values.on_card(t) and self.values.wanted(t) and t.shape == value.shape:
                    self.values.keep(t, value, state)


def kernel_of(values, base, overload, bare):
    """What is called in place of the operation."""
    o, after = CountRead(values, base, overload, bare), values.after

    def kernel(keyset, *args, **kwargs):
        if o.op is None:
            o.begin()
        call, keyset = o.op._handle.redispatch_boxed, keyset & after
        if not args[0].is_cuda or getattr(inside, "now", False):
            if values.undrawn:
                values.fulfil(args)
            return call(keyset, *args, **kwargs)
        prepared = o.prepare(base, args, kwargs)
        if not prepared or prepared[1] >= GUESS:
            values.count(args[0])
            values.say_guess_of_size(prepared[2] if prepared else None, prepared and prepared[1] == CHOICE)
        inside.told = True  # its own reads need no more words
        try:
            out = call(keyset, *args, **kwargs)
        except BaseException:
            library.unanswer()
            raise
        finally:
            inside.told = False
        o.keep(base, out, prepared)
        return out

    return kernel
