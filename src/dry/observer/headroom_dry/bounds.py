"""Unknown numbers of which bounds are known: `x.clamp(1, 64)`, `h % n`, places that a search finds. Where the program's source makes a size of one, it is in
the middle of its bounds, and in the other runs at each end. Elsewhere it stays unknown."""

import itertools

from . import counts, library
from .frames import by_source
from .masks import FIRST, MANY
from .operations import FEW, NUMBERS
from .rules import BOUNDS

SEEDS = "clamp remainder sigmoid searchsorted bucketize".split()
FOLLOWED = "round floor ceil trunc neg add sub mul div true_divide floor_divide clamp_min clamp_max".split()  # of one such number, and of known ones
CHOSEN = "max min amax amin mean median index index_select gather take flip roll sort topk".split()  # of many, it is one of them, or between them
ADDED = "sum cumsum".split()


class Bounds:
    def __init__(self):
        self.bounds = {}  # where such numbers begin: where they end, the least and the most that one may be
        self.most_bounds = MANY

    def may_be_bounded(self, bare, args):
        """Quickly asked of what most operations are given: the model's own floats."""
        if bare in SEEDS:
            return True
        if self.bounds:
            for x in args[:2]:
                if isinstance(x, self.torch.Tensor) and x.is_cuda and x.data_ptr() in self.bounds:
                    return True
        return False

    def keep_bounds(self, op, bare, args, kwargs, out):
        """`out`, of which nothing is known, was made of what has bounds."""
        for t in out if isinstance(out, (tuple, list)) else [out]:
            if isinstance(t, self.torch.Tensor) and t.dtype is not self.torch.bool and not t.dtype.is_complex and self.on_card(t):
                if t.numel() and not library.known(t.data_ptr(), 1, self.scratch(1)):
                    two = self.bounds_of_result(op, bare, args, kwargs, t)
                    if two is not None:
                        self.bound(t, *two)
                return  # what comes second are indices

    def bounds_of_result(self, op, bare, args, kwargs, out):
        x, number = args[0], args[1] if len(args) > 1 else None
        if bare == "clamp":
            least, most = number if number is not None else kwargs.get("min"), args[2] if len(args) > 2 else kwargs.get("max")
            own = self.bounds_of(x) or (None, None)
            least, most = (a if type(a) in NUMBERS else b for a, b in ((least, own[0]), (most, own[1])))
            return None if least is None or most is None or least > most else (least, most)
        if bare == "remainder":
            return (0, number - 1 if not out.dtype.is_floating_point else number) if type(number) in NUMBERS and number > 0 else None
        if bare == "sigmoid":
            return 0.0, 1.0
        if bare in ("searchsorted", "bucketize"):
            among = args[0] if bare == "searchsorted" else args[1]
            return 0, among.shape[-1]
        own = self.bounds_of(x) if isinstance(x, self.torch.Tensor) else None
        if bare in CHOSEN:
            return own
        if bare in ADDED:
            many = x.numel() // max(out.numel(), 1) if bare == "sum" else 1
            ends = own and (own[0] * many, own[1] * many)
            return ends if bare == "sum" or not own else (min(own[0], own[0] * x.numel()), max(own[1], own[1] * x.numel()))
        if bare not in FOLLOWED:
            return None
        choices = []  # for each argument: what it may be, at its ends
        for y in args:
            two = self.bounds_of(y) if isinstance(y, self.torch.Tensor) and y.is_cuda else None
            if two is None and isinstance(y, self.torch.Tensor):
                y, state = self.twin(y) if y.is_cuda else (y, 1)
                if not state or y.numel() > 1:
                    return None
            choices.append([y] if two is None else [self.torch.tensor(end, dtype=y.dtype, device="cpu") for end in two])
        if "div" in bare and len(choices) > 1 and len(choices[1]) == 2 and choices[1][0] <= 0 <= choices[1][1]:
            return None
        ends = [op(*single, **kwargs).item() for single in itertools.product(*choices)]
        return min(ends), max(ends)

    def bound(self, t, least, most):
        if t.element_size() < 2 or self.span(t) != t.numel():
            return
        if len(self.bounds) >= self.most_bounds:
            self.bounds = {at: n for at, n in self.bounds.items() if self.is_first(at)}
            self.most_bounds = max(MANY, 2 * len(self.bounds))
        self.of_masks.pop(t.data_ptr(), None)
        library.forget(t.data_ptr(), t.element_size())
        library.know(t.data_ptr(), 1, FIRST)
        self.bounds[t.data_ptr()] = t.data_ptr() + t.numel() * t.element_size(), least, most

    def bounds_of(self, t):
        """(least, most) of each of these numbers; None: not known."""
        at = self.where_bounded(t)
        return self.bounds[at][1:] if at is not None else (0, 255) if t.dtype is self.torch.uint8 else None

    def where_bounded(self, t):
        """Where the numbers begin of which `t` is a part."""
        at = t.data_ptr()
        if at not in self.bounds:
            at = next((begin for begin, (end, *_) in self.bounds.items() if begin <= at < end), None)
        return at if at is not None and self.is_first(at) else None

    def bounds_are_copied(self, to, source):
        two = self.bounds_of(source) if self.bounds and source.is_cuda and to.numel() == source.numel() else None
        if two is not None and not to.dtype.is_complex and to.dtype is not self.torch.bool:
            whole = not to.dtype.is_floating_point
            self.bound(to, *(int(x) if whole else float(x) for x in two))

    def keep_within_bounds(self, t):
        """All of what `t` is a part of is a guess from now on, if it has bounds and a size is made of it."""
        two, whole = self.bounds_of(t), not t.dtype.is_floating_point
        if two is None or not self.is_size(whole and t.numel() <= FEW):
            return None
        least, most = two
        number = {"random": (least + most) / 2, "balanced": least}.get(self.rules.how, most)
        if number < 0 and self.is_bare():
            number = 0
        at = self.where_bounded(t)
        n = t.numel() if at is None else (self.bounds.pop(at)[0] - at) // t.element_size()
        made = self.torch.full((n,), int(number) if whole else number, dtype=t.dtype, device="cpu")
        library.guess(t.data_ptr() if at is None else at, n * t.element_size(), made.data_ptr())
        self.say_routed(BOUNDS)
        return True

    @staticmethod
    def is_bare():
        return by_source(counts.is_bare, False)

    @staticmethod
    def is_size(is_whole):
        return by_source(counts.is_size, True, counts.NUMBER, is_whole)
