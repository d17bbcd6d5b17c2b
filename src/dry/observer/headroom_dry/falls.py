"""Numbers of the card that fall, or rise, from one read to the next, in the runs that a branch which compares them makes (improving.py): each comparison
with an earlier one then says that it is better, or never does. And numbers above, or below, each threshold that they are held against."""
import os
import sys

from . import counts, improving, library, rest
from .choices import CHOICE, GUESS
from .frames import asking_frames, by_source, own_frame
from .items import MOST_ITEMS
from .orders import LESS, MORE, Orders
from .reads import PLAIN
from .rules import FALLS, JUMPS, LEVELS, MASKS, ORDERS
from .sequences import Sequence
from .thresholds import jump_runs, level_runs

CALLERS = 20


class Falls:
    def __init__(self):
        self.sequence = Sequence(self.rules.way, PLAIN)
        self.orders = Orders(self.rules.order)
        self.measured = set()  # lines that read or compare a float, or a count, that only the card knows
        self.compared_at = set()  # (file, line) where single floats are compared on the card
        self.readers, self.files = set(), set()  # functions that were being called then, by name, and the files that they are in
        self.varied = {}  # where such a number was put: which it is
        self.given = set()  # floats that were put anywhere: a copy of one, or the least of several, stays as it is
        self.program = getattr(sys.modules.get("__main__"), "__file__", None)
        library.at_end(self.say_what_keeps)

    def measure(self, compared=False, single=False):
        """Such a number is read, or `compared` on the card. `single`: alone, or as one of few."""
        frame = own_frame(sys._getframe(), anywhere=True)
        where = frame and (frame.f_code, frame.f_lineno)
        if compared and where:
            self.compared_at.add((frame.f_code.co_filename, frame.f_lineno))
        if single:
            self.orders.read(where)
        if where not in self.measured:
            self.measured.add(where)
            codes = [f.f_code for f, _ in zip(asking_frames(frame), range(CALLERS))]
            self.readers.update(code.co_name for code in codes)
            self.files.update(code.co_filename for code in codes)

    def vary(self, t, usual=None):
        """`t`, one number of the card that is a guess, or unknown where there is a `usual` one, becomes the next of those that fall or rise, once."""
        held, state = self.twin(t)
        at, floats = t.data_ptr(), t.dtype.is_floating_point
        if state not in ((0, GUESS, CHOICE) if usual is not None and not floats else (0, GUESS)) or not state and usual is None or state and (self.varied.get(at) == held.item() or floats and held.item() in self.given):
            return
        if not floats and (t.dtype is self.torch.bool or self.is_asked_for_a_size()):
            return
        value = self.other_guess(held.double(), floats) if state else self.torch.full(t.shape, usual * self.sequence.share(), dtype=self.torch.float64, device="cpu")
        value = (value if floats else value.round()).to(t.dtype)
        self.varied[at] = value.item()
        self.given.add(value.item())
        self.keep(t, value, GUESS)

    def other_guess(self, held, floats):
        """In place of a guess: of a mask as many or as few are true as may be, and what is drawn between 0 and 1 is at an end."""
        other = held * self.sequence.share(0.25)
        return other.clamp(min=1) if floats and self.sequence.way == "above" else other

    def orders_by_items(self, t):
        """Unknown numbers come to the host together: in some runs they are in the order of the items beside them."""
        if t.numel() == max(t.shape) <= MOST_ITEMS and not self.twin(t)[1]:
            shares = self.orders.shares(t.numel(), PLAIN)
            if shares is not None:
                self.keep(t, PLAIN * self.torch.tensor(shares, dtype=self.torch.float64, device="cpu").reshape(t.shape), GUESS)

    def is_asked_for_a_size(self):
        return by_source(counts.is_size, True, counts.NUMBER, True)

    def compare_numbers(self, args, usual):
        """Single floats, or counts, that are compared on the card: of two that are new, the second is taken to be the older one."""
        for x in args[1::-1]:
            if isinstance(x, self.torch.Tensor) and x.numel() == 1 and self.on_card(x) and (x.dtype.is_floating_point or self.is_count(x)):
                self.vary(x, usual)

    def is_count(self, x):
        """Whether it is a whole number of the card that follows from a choice or a guess: how many answers are right."""
        is_one = isinstance(x, self.torch.Tensor) and x.numel() == 1 and not x.dtype.is_floating_point and x.dtype is not self.torch.bool and self.on_card(x)
        return is_one and self.twin(x)[1] in (GUESS, CHOICE)

    def say_what_keeps(self):
        """At the end: the line of a branch that keeps more as such numbers fall or rise."""
        from . import steps
        if "HEADROOM_DRY_ROUTING" in os.environ:
            return
        for number in self.classes_left() if MASKS in self.said_guesses else ():
            library.mark("run", f"worst+class:{number}|with class {number} for all that choose one")
        if not self.measured and self.orders.chosen_at is None:
            return
        read = {(code.co_filename, line) for code, line in filter(None, self.measured)}
        found = improving.kept_by(self.program, not (rest.why or steps.is_ending()), self.readers, self.files, self.compared_at, read)
        if self.levels_at is not None:
            found.lines.setdefault(improving.LEVEL, self.levels_at)
            found.levels.update(*counts.held_against.values())
        if self.orders.chosen_at is not None:
            found.lines.setdefault(improving.ORDER, self.orders.chosen_at)
        kinds = {improving.EARLIER: FALLS, improving.LEVEL: LEVELS, improving.JUMP: JUMPS}
        if self.orders.differ():
            kinds[improving.ORDER] = ORDERS
        for kind, guess in kinds.items():
            if kind in found.lines:
                library.mark("routed", found.lines[kind], guess)
                for way, how, instead in self.runs_for(kind, found):
                    library.mark("run", f"random+{way}|{how}", instead)

    def runs_for(self, kind, found):
        """(way, how it is said, whether it is only made in place of the one before that failed) of each further run."""
        if kind == improving.LEVEL:
            return level_runs(found.levels, None if self.among or self.rules.counted else PLAIN)  # counts and shares have no usual number
        if kind == improving.JUMP:
            return jump_runs(found.factor)
        if kind == improving.ORDER:
            return [(f"order:{LESS}", "with the least number for what asked for most memory", False),
                    (f"order:{MORE}", "with the largest number for what asked for most memory", False)]
        return []
