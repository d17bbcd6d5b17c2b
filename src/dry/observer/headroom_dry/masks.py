"""Unknown masks and their copies: as numbers (`mask.long()`, `mask.float()`, `1 - mask.long()`) or as masks again. As many places are taken to be true of a copy
as of the mask, so sums and means of it are as many."""
import collections
import ctypes
import weakref

from . import library
from .operations import MOST, NUMBERS

FIRST = ctypes.create_string_buffer(b"\0", 1)  # of a copy in numbers one byte is known: it goes with the block, or with what is written over it
MANY = 256
FEW_COMPLEMENTS = 16
FEW_OF = 8  # one place in so many is few
MOST_COUNTED = 8 * MOST  # elements of an unknown mask of which rows are counted one by one
FOLLOWED = "mul add sub rsub div true_divide neg abs where clamp clamp_min clamp_max maximum minimum".split()  # two values become two others
TOGETHER = "mul add maximum minimum".split()  # of two masks: both are true, or neither


class Masks:
    def __init__(self):
        self.of_masks = {}  # where such copies begin: how many elements they have, what they hold where the mask is false, and where it is true
        self.most_of_masks = MANY  # as many are kept before it is asked which are left
        self.complements = collections.deque(maxlen=FEW_COMPLEMENTS)  # the last masks that were turned over: what became of each, it, and their versions

    def mask_is_copied(self, to, source):
        two = self.two_values(source)
        if two is None or to.dtype.is_complex or to.numel() != source.numel() or self.span(to) != to.numel():
            return
        self.rules.copied(to, source)
        if to.dtype is not self.torch.bool:
            self.follow_mask(to, *two)

    def follow_mask(self, to, false, true):
        if to.element_size() < 2:
            return
        if len(self.of_masks) >= self.most_of_masks:
            self.of_masks = {at: n for at, n in self.of_masks.items() if self.is_first(at)}
            self.most_of_masks = max(MANY, 2 * len(self.of_masks))
        self.bounds.pop(to.data_ptr(), None)
        library.forget(to.data_ptr(), to.element_size())
        library.know(to.data_ptr(), 1, FIRST)
        self.of_masks[to.data_ptr()] = to.numel(), false, true

    def note_complement(self, made, of):
        """`made` is true where the unknown mask `of` is not."""
        if not made.is_inference():
            self.complements.append((weakref.ref(made), weakref.ref(of), made._version, of._version))

    def complement_among(self, x, parts):
        """The one of `parts` of which `x` is the complement; None: of none."""
        for made, of, *versions in self.complements:
            if made() is x and versions == [x._version, of()._version if of() is not None else None]:
                return next((y for y in parts if y is of()), None)
        return None

    def joined_masks(self, parts, dim=0):
        """Masks side by side, some of them the complements of others: together they have as many true places, however many each has. None: no two are."""
        tensor, of_bools = self.torch.Tensor, self.torch.bool
        if not isinstance(parts, (list, tuple)) or not all(isinstance(x, tensor) and x.dtype is of_bools and self.on_card(x) for x in parts):
            return None
        pairs = [self.complement_among(x, parts) for x in parts]
        if not any(of is not None for of in pairs) or sum(x.numel() for x in parts) > MOST:
            return None
        self.rules.masked = True
        return self.torch.cat([self.mask_of(x) if of is None else ~self.mask_of(of) for x, of in zip(parts, pairs)], dim)

    def both_masks(self, parts, shape):
        """Of an unknown mask and a known one that is true in few places (pairs of atoms of one molecule), only these may be true in both. None: no such pair."""
        n = shape.numel()
        for x in parts:
            if isinstance(x, self.torch.Tensor) and x.dtype is self.torch.bool and self.on_card(x) and x.shape == shape and MANY <= n <= MOST:
                held, state = self.twin(x)
                if state == 1 and held.sum() * FEW_OF <= n:
                    self.rules.masked = True
                    held[held.clone()] = self.rules.mask((int(held.sum()),))
                    return held
        return None

    def mask_of(self, x):
        held, state = self.twin(x)
        return held if state else self.rules.mask(x.shape, self.rules.lacks(x))

    def mask_is_written(self, t):
        """Something is written to `t`: it, or what it is a view of, is no copy of a mask any more. A write to many floats is not looked at elsewhere."""
        begin = self.begins(t)
        if begin is not None:
            self.of_masks.pop(begin, None)
            self.of_masks.pop(t.data_ptr(), None)

    def is_first(self, at):
        held = self.scratch(2)
        return library.known(at, 1, held) == 1 and held[0] == FIRST[0] and not library.known(at, 2, held)

    def two_values(self, x):
        """What a mask, or a copy of one in numbers, holds where it is false and where it is true; None: it is neither."""
        if x.dtype is self.torch.bool:
            return 0, 1
        n, *two = self.of_masks.get(x.data_ptr(), (0,)) if self.of_masks else (0,)
        return two if two and n == x.numel() and self.is_first(x.data_ptr()) else None

    def is_of_a_mask(self, x):
        """Whether it is a mask, or one in numbers."""
        return self.two_values(x) is not None

    def may_follow(self, args):
        """Quickly asked of what most operations are given: the model's own floats."""
        tensor, of_bools = self.torch.Tensor, self.torch.bool
        for x in args:
            if isinstance(x, tensor) and (x.dtype is of_bools or self.of_masks and self.on_card(x) and x.data_ptr() in self.of_masks):
                return True
        return False

    def follow_coins(self, out):
        """`out` was drawn: ones where a mask would be true."""
        is_whole = self.on_card(out) and out.numel() > 1 and out.dtype is not self.torch.bool and self.span(out) == out.numel()
        if is_whole and not library.known(out.data_ptr(), 1, self.scratch(1)):
            self.follow_mask(out, 0, 1)

    def follow_arithmetic(self, op, bare, args, kwargs, out):
        """`out` is made of an unknown mask, or of a copy, and of single numbers."""
        if not self.on_card(out) or out.numel() < 2 or out.dtype is self.torch.bool or self.span(out) != out.numel():
            return
        if library.known(out.data_ptr(), 1, self.scratch(1)):  # of all of it, or that it is computed later
            return
        masks, false, true = 0, [], []
        for x in args:
            if isinstance(x, self.torch.Tensor) and x.numel() > 1:
                two = self.two_values(x) if x.is_cuda and x.numel() == out.numel() else None
                if two is None:
                    return
                masks += 1
                at = x
                false.append(self.torch.tensor(two[0], dtype=x.dtype, device="cpu"))
                true.append(self.torch.tensor(two[1], dtype=x.dtype, device="cpu"))
                continue
            if isinstance(x, self.torch.Tensor):
                x, state = self.twin(x) if x.is_cuda else (x, 1)
                if not state:
                    return
            elif type(x) not in NUMBERS:
                return
            false.append(x)
            true.append(x)
        if masks == 1 or masks == 2 and bare in TOGETHER and not kwargs and self.are_alike(bare, false, true):
            self.rules.copied(out, at)
            self.follow_mask(out, op(*false, **kwargs).item(), op(*true, **kwargs).item())

    @staticmethod
    def are_alike(bare, false, true):
        """Whether two masks in numbers make the more, the more of each is true: not `a * (1 - b)`, of which nothing is left if all of both, or nothing, is true."""
        rises = [t >= f for f, t in zip(false, true)]
        return rises[0] == rises[1] and (bare != "mul" or min(*false, *true) >= 0)

    def count_of_mask(self, bare, x, along, shape):
        """A sum of an unknown mask or of a copy, or a mean; along dimensions: of each row."""
        false, true = self.two_values(x)
        torch, n = self.torch, x.numel()
        if bare == "count_nonzero":
            false, true = int(false != 0), int(true != 0)
        share = bare == "mean"
        if not shape and bare != "cumsum":
            ones = self.rules.how_many(x)
            made = false * (n - ones) + true * ones
            return torch.tensor(made / n if share else made, device="cpu")
        if n > MOST_COUNTED:
            if bare == "cumsum":
                return None
            rows = 1
            for size in shape:
                rows *= size
            in_each = n // max(rows, 1)
            ones = self.rules.how_many(x) // max(rows, 1)
            made = false * (in_each - ones) + true * ones
            return torch.full(list(shape), made / in_each if share else made, device="cpu")
        ones = self.rules.mask(x.shape, self.rules.lacks(x))
        if share or (false, true) != (0, 1):
            ones = torch.where(ones, float(true), float(false)) if share or type(true) is float or type(false) is float else torch.where(ones, true, false)
        return getattr(torch, bare)(ones, along).reshape(list(shape))
