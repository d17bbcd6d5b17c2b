"""Choices among unknown numbers: the class of a pixel, the next word, the first place where a row ends. A stand-in keeps the program going, and which one it
is decides no size by itself. What follows from it may be any of them: the other runs have all of them alike, so that the first mask that asks for one is full
in one run and empty in another."""
import ast
import functools
import sys

from . import library, told
from .frames import by_source, own_frame
from .loops import nodes_of

GUESS, WORD, CHOICE = 2, 3, 4  # states of what is known
WORDS = 1024  # a choice among more is a word; in few rows, of a text that is generated: it is no word that ends it
ALL_WORDS = 1 << 19  # no vocabulary has more: a choice among these is a place
FEW_ROWS = 64  # fewer rows than these, and words, keep their stand-in where a mask compares them: generation goes on
MANY = 4096
HEAVIER, MOST_CLASSES = 1.25, 3  # so many times as much is more; runs
CHOOSING = "argmax argmin multinomial max min".split()
ASKING = "eq ne lt le gt ge".split()
PLACING = "argmax argmin".split()  # of ones and zeros: where a row has its first one
LISTED = "argmax argmin max min topk sort".split()  # may choose items of a list
ADDING = "sum mean count_nonzero cumsum".split()


@functools.lru_cache(maxsize=None)
def classes_asked(file):
    """Whole numbers that a source asks whether something is equal to, from its first line on."""
    sides = [[n.left, *n.comparators] for n in sorted(nodes_of(file, ast.Compare), key=lambda n: n.lineno) if any(isinstance(op, (ast.Eq, ast.NotEq)) for op in n.ops)]
    return [x.value for two in sides for x in two if isinstance(x, ast.Constant) and type(x.value) is int]


class Choices:
    def __init__(self):
        self.among = {}  # where choices begin: among how many each is one
        self.class_asked = None  # (class, how many chose it, bytes that were asked for until then): what comes after is done for this class
        self.for_class = {}  # by class: bytes that were asked for each that chose it
        self.first_asked, self.classes_among = None, 0
        self.look_at_class, self.choose_items = self.shell(self.look_at_class), self.shell(self.choose_items)

    def choose_items(self, bare, args, kwargs, results):
        """Where one row of unknown numbers chooses items of a list beside it (items.py): which, in a run that orders them by their size. None: as ever."""
        x, torch = args[0] if args else None, self.torch
        if bare not in LISTED or not isinstance(x, torch.Tensor) or not x.dtype.is_floating_point or results[-1].dtype.is_floating_point:
            return None
        many, indices = x.numel(), results[-1]
        if not (x.dim() == 1 or x.dim() == 2 and x.shape[0] == 1) or bare in ("max", "min") and indices.numel() != 1:
            return None
        places = self.orders.places(many, self.is_of_the_largest(bare, args, kwargs))
        if places is None:
            return None
        self.orders.note_chosen(indices.data_ptr(), indices.numel() * indices.element_size())
        if not self.orders.way:
            return None
        self.rules.last_state, self.rules.last_among = CHOICE, many
        return [None] * (len(results) - 1) + [torch.tensor(places[:indices.numel()], device="cpu").reshape(indices.shape)]

    @staticmethod
    def is_of_the_largest(bare, args, kwargs):
        if bare == "topk":
            return bool(args[3] if len(args) > 3 else kwargs.get("largest", True))
        if bare == "sort":
            return bool(args[2] if len(args) > 2 else kwargs.get("descending", False))
        return bare in ("argmax", "max")

    def say_items(self, t):
        """The program reads which items its numbers choose."""
        orders = self.orders
        if orders.chosen_at is None and not t.dtype.is_floating_point and orders.is_chosen(t.data_ptr()) and not by_source(told.is_only_told, False):
            frame = own_frame(sys._getframe())
            orders.have_items, orders.chosen_at = True, frame and f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def note_choices(self, t):
        if len(self.among) >= MANY:
            self.among.clear()
        self.among[t.data_ptr()] = self.rules.last_among

    def compare_choices(self, bare, args):
        """In a run with other masks the first mask that compares choices with a number, or with as many others, says which they are: it is full, or empty and
        the first, or the last, of the other classes has nearly all rows."""
        x, other = args[0], args[1] if len(args) > 1 else None
        rules = self.rules
        if rules.how == "random":
            if self.among and type(other) is int and bare == "eq" and x.data_ptr() in self.among and x.numel() > FEW_ROWS:
                self.look_at_class(x, other)
            return
        if bare not in ASKING or not isinstance(x, self.torch.Tensor) or x.numel() <= FEW_ROWS or x.dtype.is_floating_point:
            return
        held, state = self.twin(x)
        if state != CHOICE:
            return
        among = self.among.get(x.data_ptr(), 0)
        if not 1 < among <= WORDS or bool(held.max() >= among):
            return
        if rules.favoured is not None and rules.favoured < among:
            rules.picked = True
            self.keep(x, self.torch.full(x.shape, rules.favoured, dtype=held.dtype, device="cpu"), GUESS)
            return
        mask = rules.mask(x.shape, rules.lacks(x))
        made = self.as_asked(bare, held, other, among, ~mask if rules.nearly else mask)
        if made is not None:
            rules.picked = True
            self.keep(x, made, GUESS)

    def look_at_class(self, x, number):
        """The program asks which of `x` chose this class: what it asks for until it asks for another is this one's."""
        held, state = self.twin(x)
        if state != CHOICE or library.asked is None:
            return
        self.first_asked = number if self.first_asked is None else self.first_asked
        if number != self.first_asked:  # else what came before was done for all
            self.end_class()
        self.classes_among = max(self.classes_among, self.among[x.data_ptr()])
        self.class_asked = number, max(int((held == number).sum()), 1), library.asked()

    def end_class(self):
        if self.class_asked is not None:
            number, many, asked = self.class_asked
            self.for_class[number] = max((library.asked() - asked) / many, self.for_class.get(number, 0))

    def classes_left(self):
        """The classes that no run is about, and for which more may be asked than for these: the one with most for each that chose it, the last one that the
        program asks for, and those that it asks for after a copy to the host."""
        taken = {self.first_asked, 0 if self.first_asked else 1, self.classes_among - 1}
        most = max((each for number, each in self.for_class.items() if number in taken), default=0)
        heavy = [number for number, each in self.for_class.items() if number not in taken and each > HEAVIER * most]
        last = [self.class_asked[0]] if self.class_asked is not None and self.class_asked[0] not in taken else []
        left = sorted(heavy, key=self.for_class.get)[-1:] + last
        return list(dict.fromkeys(left + self.rules.others_asked))[:MOST_CLASSES]

    def as_asked(self, bare, held, other, among, mask):
        """Choices for which the comparison gives this mask; None: there are none."""
        torch = self.torch
        if isinstance(other, torch.Tensor) and other.numel() > 1:
            if other.shape != held.shape or bare not in ("eq", "ne"):
                return None
            other, state = self.twin(other) if other.is_cuda else (other, 1)
            if not state:
                return None
            same = other.clamp(0, among - 1).to(held.dtype)
            return torch.where(mask if bare == "eq" else ~mask, same, (same + 1) % among)
        if isinstance(other, torch.Tensor):
            other, state = self.twin(other) if other.is_cuda else (other, 1)
            if not state:
                return None
        each = torch.arange(among, dtype=held.dtype, device="cpu")
        true = getattr(torch, bare)(each, other)
        if true.all() or not true.any():
            return None
        return torch.where(mask, each[true][0], each[~true][-1 if self.rules.nearly else 0])

    def mask_of_choices(self, x, held):
        """A mask that follows from choices, where its places make a size: as it is, or as the other runs have masks."""
        return held if self.rules.how == "random" else self.rules.mask(x.shape, self.rules.lacks(x))

    def is_of_ones(self, x):
        """Whether it is a mask, or ones and zeros, that follows from choices or guesses, in a run with other masks."""
        return self.rules.how != "random" and self.holds_ones(x)

    def holds_ones(self, x):
        held, state = self.twin(x)
        return state >= GUESS and (x.dtype is self.torch.bool or bool(((held == 0) | (held == 1)).all()))

    def ones_of_choices(self, x):
        """What is added up of ones and zeros that follow from choices, in a run with other masks, or with other numbers, of which a count of right answers is
        one; None: as it is."""
        if self.rules.how == "random" and not self.rules.way or self.twin(x)[1] != CHOICE or not self.holds_ones(x):
            return None
        self.rules.counted = True
        return self.rules.mask(x.shape, self.rules.lacks(x)).to(x.dtype)
