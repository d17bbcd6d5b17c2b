"""Numbers of the card that fall, or rise, from one read to the next, in the runs that a branch which compares them makes (improving.py): each comparison
with an earlier one then says that it is better, or never does. And numbers above, or below, each threshold that they are held against."""
import os
import sys

from . import counts, improving, library, rest
from .choices import CHOICE, GUESS
from .frames import asking_frames, own_frame
from .rules import FALLS, LEVELS

CALLERS = 20
TURNS = 4  # after so many reads a falling count is half of the first
FIRST, STEEP, LESS = 16 / 3, 10, 0.6  # a float falls from 4 to below 0.03 in its first reads: past the thresholds that losses are held against
SHARE = 6 / 5  # a share falls from 0.9: where a number is taken for one, 4 is none
ABOVE, NEARLY, LITTLE, BELOW = 400 / 3, 4 / 3, 4e-6 / 3, -4 / 3  # from 100 upwards, nearly 1, from 0.000001 downwards, from -1 downwards

SIDES = {"above": 2, "likely": 1.96, "little": 0, "below": 0}  # of a count, for which half of a mask is true: all, nearly all, nothing


class Falls:
    def __init__(self):
        self.turns = 0
        self.measured = set()  # lines that read or compare a float, or a count, that only the card knows
        self.compared_at = set()  # (file, line) where single floats are compared on the card
        self.readers, self.files = set(), set()  # functions that were being called then, by name, and the files that they are in
        self.varied = {}  # where such a number was put: which it is
        self.given = set()  # floats that were put anywhere: a copy of one, or the least of several, stays as it is
        self.program = getattr(sys.modules.get("__main__"), "__file__", None)
        library.at_end(self.say_what_keeps)

    def measure(self, compared=False):
        """Such a number is read, or `compared` on the card."""
        frame = own_frame(sys._getframe(), anywhere=True)
        where = frame and (frame.f_code, frame.f_lineno)
        if compared and where:
            self.compared_at.add((frame.f_code.co_filename, frame.f_lineno))
        if where not in self.measured:
            self.measured.add(where)
            codes = [f.f_code for f, _ in zip(asking_frames(frame), range(CALLERS))]
            self.readers.update(code.co_name for code in codes)
            self.files.update(code.co_filename for code in codes)

    def share(self, least=None):
        """Of the usual number: what the next one is. `least`: of a count, which is no more than it is; where a rising one begins. Else a rising one goes from
        all of it to a third more."""
        turn, self.turns = self.turns, self.turns + 1
        down, way = 1 / (1 + turn / TURNS), self.rules.way
        if way in SIDES:
            return SIDES[way] if least is not None else {"above": ABOVE * (2 - down), "likely": NEARLY * (1 - 0.01 * down), "little": LITTLE * down, "below": BELOW * (2 - down)}[way]
        if way in ("falls", "shares"):
            first = FIRST if way == "falls" else SHARE
            return down if least is not None else first * LESS ** min(turn, STEEP) / (1 + max(turn - STEEP, 0) / TURNS)
        return (4 - down) / 3 if least is None else 1 - (1 - least) * down

    def vary(self, t, usual=None):
        """`t`, one number of the card that is a guess, or unknown where there is a `usual` one, becomes the next of those that fall or rise, once."""
        held, state = self.twin(t)
        at, floats = t.data_ptr(), t.dtype.is_floating_point
        if state not in ((0, GUESS, CHOICE) if usual is not None and not floats else (0, GUESS)) or not state and usual is None or state and (self.varied.get(at) == held.item() or floats and held.item() in self.given):
            return
        if not floats and (t.dtype is self.torch.bool or self.is_asked_for_a_size()):
            return
        value = self.other_guess(held.double(), floats) if state else self.torch.full(t.shape, usual * self.share(), dtype=self.torch.float64, device="cpu")
        value = (value if floats else value.round()).to(t.dtype)
        self.varied[at] = value.item()
        self.given.add(value.item())
        self.keep(t, value, GUESS)

    def other_guess(self, held, floats):
        """In place of a guess: of a mask as many or as few are true as may be, and what is drawn between 0 and 1 is at an end."""
        other = held * self.share(0.25)
        return other.clamp(min=1) if floats and self.rules.way == "above" else other

    def is_asked_for_a_size(self):
        from .reads import by_source
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
        if not self.measured or "HEADROOM_DRY_ROUTING" in os.environ:
            return
        read = {(code.co_filename, line) for code, line in filter(None, self.measured)}
        found = improving.kept_by(self.program, not (rest.why or steps.is_ending()), self.readers, self.files, self.compared_at, read)
        for kind, guess in ((improving.EARLIER, FALLS), (improving.LEVEL, LEVELS)):
            if kind in found:
                library.mark("routed", found[kind], guess)
