"""Numbers of the card that fall, or rise, from one read to the next, in the runs that a branch which compares them makes (improving.py): each comparison
with an earlier one then says that it is better, or never does."""
import os
import sys

from . import counts, improving, library, rest
from .choices import GUESS
from .frames import asking_frames, own_frame
from .rules import FALLS

CALLERS = 20
TURNS = 4  # after so many reads a falling count is half of the first
FIRST, STEEP, LESS = 16 / 3, 10, 0.6  # a float falls from 4 to below 0.03 in its first reads: past the thresholds that losses are held against


class Falls:
    def __init__(self):
        self.turns = 0
        self.measured = set()  # lines that read or compare a float, or a count, that only the card knows
        self.readers, self.files = set(), set()  # functions that were being called then, by name, and the files that they are in
        self.varied = {}  # where such a number was put: which it is
        self.given = set()  # floats that were put anywhere: a copy of one, or the least of several, stays as it is
        self.program = getattr(sys.modules.get("__main__"), "__file__", None)
        library.at_end(self.say_what_keeps)

    def measure(self):
        """Such a number is read or compared."""
        frame = own_frame(sys._getframe(), anywhere=True)
        where = frame and (frame.f_code, frame.f_lineno)
        if where not in self.measured:
            self.measured.add(where)
            codes = [f.f_code for f, _ in zip(asking_frames(frame), range(CALLERS))]
            self.readers.update(code.co_name for code in codes)
            self.files.update(code.co_filename for code in codes)

    def share(self, least=None):
        """Of the usual number: what the next one is. `least`: of a count, which is no more than it is; where a rising one begins. Else a rising one goes from
        all of it to a third more."""
        turn, self.turns = self.turns, self.turns + 1
        down = 1 / (1 + turn / TURNS)
        if self.rules.way == "falls":
            return down if least is not None else FIRST * LESS ** min(turn, STEEP) / (1 + max(turn - STEEP, 0) / TURNS)
        return (4 - down) / 3 if least is None else 1 - (1 - least) * down

    def vary(self, t, usual=None):
        """`t`, one number of the card that is a guess, or unknown where there is a `usual` one, becomes the next of those that fall or rise, once."""
        held, state = self.twin(t)
        at, floats = t.data_ptr(), t.dtype.is_floating_point
        if state not in (0, GUESS) or not state and usual is None or state and (self.varied.get(at) == held.item() or floats and held.item() in self.given):
            return
        if not floats and (t.dtype is self.torch.bool or self.is_asked_for_a_size()):
            return
        value = held.double() * self.share(0.25) if state else self.torch.full(t.shape, usual * self.share(), dtype=self.torch.float64, device="cpu")
        value = (value if floats else value.round()).to(t.dtype)
        self.varied[at] = value.item()
        self.given.add(value.item())
        self.keep(t, value, GUESS)

    def is_asked_for_a_size(self):
        from .reads import by_source
        return by_source(counts.is_size, True, counts.NUMBER, True)

    def compare_numbers(self, args, usual):
        """Single floats that are compared on the card: of two that are new, the second is taken to be the older one."""
        for x in args[1::-1]:
            if isinstance(x, self.torch.Tensor) and x.numel() == 1 and x.dtype.is_floating_point and self.on_card(x):
                self.vary(x, usual)

    def say_what_keeps(self):
        """At the end: the line of a branch that keeps more as such numbers fall or rise."""
        from . import steps
        if not self.measured or "HEADROOM_DRY_ROUTING" in os.environ:
            return
        where = improving.kept_by(self.program, not (rest.why or steps.is_ending()), self.readers, self.files)
        if where:
            library.mark("routed", where, FALLS)
