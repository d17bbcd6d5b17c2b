"""Reads of values that only a card knows: the number that stands for one, the line that asked, and loops that wait for one to change."""
import contextlib
import os
import struct
import sys
import time

from . import counts, library, loops, told
from .choices import CHOICE, GUESS, WORD, WORDS
from .frames import asking_frames, by_source, is_own, is_shown, loop_frame, own_frame
from .operations import FEW, KNOWN, MOST
from .rules import DRAWS, EXPERTS, MASKS

# Reads of unknown values by one line in one turn of its loop's function, after which it waits for a change that never comes: in a `while` that
# something else may end, in one that only this value ends, and in a `for`, which ends by itself.
LOOP = int(os.environ.get("HEADROOM_DRY_LOOP", 20000))
ENDLESS, ENDING = min(LOOP, 1500), 10 * LOOP
# Of integers, which no turn changes, these suffice where they have taken so long.
FEW_READS, LONG_S = min(LOOP, 200), float(os.environ.get("HEADROOM_DRY_LOOP_S", 5))
# An unknown float, as a loss, a norm or a share may be: positive, below 1, and no number whose logarithm, or distance to a half or to 1, is 0.
# The forecast of a program that ends early with it runs that program again with another.
PLAIN = float(os.environ.get("HEADROOM_DRY_FLOAT", 0.75))
LEAST_SIZE = 1.0  # of which a program makes a size, a whole one as well: a tensor of no elements ends most of them
# A line that reads one so often, in one call and one step, waits for it to fall or to rise. The next 100 reads give one, then the other.
PATIENCE, FALLEN, RISEN = 1000, 1e-12, 100.0
TURNS = 16  # of a package's `while` that compares one: a solver of differential equations, whose steps may all be kept for the backward pass


class Reads:
    def __init__(self):
        self.reads, self.compared, self.counted = {}, {}, {}  # by line: reads in all; a call of its loop's function, reads in that call since the last step
        self.waiting = {}  # by line: of its loop, when it began, what the card was given and how often floats were compared by then
        self.compares, self.turns = 0, {}  # turns: of a package's loops, by line
        self.as_bytes = {}  # by (dtype, number)
        self.said_guesses, self.said_open, self.said_size = set(), False, False
        self.levels_at = None  # the first line that copies numbers to the host that choose there by thresholds
        self.say_guessed, self.say_size_of_numbers = self.shell(self.say_guessed), self.shell(self.say_size_of_numbers)
        self.within_bounds = self.shell(self.keep_within_bounds)
        self.mask_on_host = self.shell(self.choose_on_host)
        self.vary_guess = self.shell(self.vary)
        self.order_items = self.shell(self.orders_by_items)

    def read(self, t):
        """The bytes of the number that stands for what is unknown of `t`; none: zeros."""
        if self.later and self.on_card(t):
            self.settle(t)
        number = PLAIN
        if self.on_card(t) and t.numel() <= MOST and (t.numel() == 1 or not t.dtype.is_floating_point):
            n = self.span(t)
            state = library.known(t.data_ptr(), n * t.element_size(), self.scratch(n * t.element_size())) if n else 1
            if state != 1 and t.numel() == 1 and t.dtype is not self.torch.bool:
                self.measure(single=t.dtype.is_floating_point)
            if self.rules.way and state == GUESS and t.numel() == 1:
                self.vary_guess(t)
            if state != 1:
                number = self.count(t)
                if t.dtype.is_floating_point and by_source(counts.is_size, False):
                    number = max(number, LEAST_SIZE)
            if state >= GUESS:
                self.say_items(t)
                self.say_guessed(t, state)
            elif not state and t.dtype is self.torch.bool:
                if t.numel() > 1 and by_source(counts.is_size, True, counts.MASK):
                    self.mask_on_host(t)
            elif not state and self.bounds and self.within_bounds(t):
                return b""  # it is known now
            elif not state:
                is_whole = not t.dtype.is_floating_point and t.numel() <= FEW
                self.say_size(counts.NUMBER, is_whole)
                if is_whole and t.numel() == 1 and by_source(counts.is_size, False):
                    number = LEAST_SIZE
        elif self.on_card(t) and t.dtype.is_floating_point:
            self.measure()
            self.order_items(t)
            if not self.said_size:
                self.say_size_of_numbers(t)
        if not t.dtype.is_floating_point and not t.dtype.is_complex:
            return int(number).to_bytes(t.element_size(), sys.byteorder) if number == LEAST_SIZE else b""
        if number == PLAIN and t.dtype.is_floating_point and (self.rules.way or self.rules.order and t.numel() == 1):
            share = self.sequence.share() if self.rules.way else self.orders.share(PLAIN)
            return bytes_of(PLAIN * share, str(t.dtype)[6:])
        key = t.dtype, number
        if key not in self.as_bytes:
            self.as_bytes[key] = bytes_of(number, str(t.dtype)[6:])
        return self.as_bytes[key]

    @contextlib.contextmanager
    def unknown_as(self, element):
        if not element or library.unknown is None:
            yield
            return
        library.unknown(element, len(element))
        try:
            yield
        finally:
            library.unknown(None, 0)

    def count(self, t):
        """A read of an unknown value, by the line that asked. One line that asks too often in one loop waits for a change that never comes."""
        frame = own_frame(sys._getframe())
        number, key, seen = self.seen(frame, self.reads)
        if seen is None:
            return number
        if seen[0] & (seen[0] - 1) == 0:
            library.mark("value", f"{key[0]}:{key[1]} {str(t.dtype)[6:]}", seen[0])
        if is_shown(sys._getframe()):
            return number
        if seen[2] == 1:
            self.waiting[key] = time.monotonic(), self.compares, library.work() if library.work else None
        elif seen[2] >= FEW_READS or seen[2] & (seen[2] - 1) == 0 and seen[2] >= 16:
            self.look_at_loop(t, frame, key, seen[2])
        return number

    def look_at_loop(self, t, frame, key, times):
        where = loop_frame(frame)
        kind = loops.kind_of(where.f_code.co_filename, where.f_lineno) if where else None
        line = f"{where.f_code.co_filename}:{where.f_lineno}" if where else f"{key[0]}:{key[1]}"
        if times & (times - 1) == 0:
            library.mark("loop", line, times)
        most = {loops.ENDLESS: ENDLESS, loops.FOR: ENDING}.get(kind, LOOP)
        if times < most and kind in (loops.ENDLESS, loops.WHILE) and times >= FEW_READS and not t.dtype.is_floating_point and key in self.waiting:
            began, compares, work = self.waiting[key]
            same = work is not None and library.work() == work  # nothing that could change it
            if compares == self.compares and (same or kind == loops.ENDLESS) and time.monotonic() > began + LONG_S:
                most = times
        if times >= most:
            from . import steps
            steps.end(f"{line} waits for a value of the card to change. A dry run does not know it; it was read {times} times", 1)

    def float_at(self, frame, lines):
        self.compares += 1
        number = self.seen(own_frame(frame), lines)[0]
        return self.ending(frame) if number == PLAIN and not self.rules.way else number

    def ending(self, frame):
        """The number in the test of a package's `while`: after TURNS turns a large one, then a small one, so that it ends whichever it waits for."""
        asks = next(asking_frames(frame), None)
        key = asks and (asks.f_code.co_filename, asks.f_lineno)
        if not key or is_own(key[0]) or not loops.is_test(*key):
            return PLAIN
        turn = self.turns[key] = self.turns.get(key, 0) % (TURNS + 2) + 1
        return PLAIN if turn <= TURNS else RISEN if turn == TURNS + 1 else FALLEN

    def seen(self, frame, lines):
        """A use of an unknown value in this frame: the number that stands for a float, the line, and its counts in `lines`."""
        if frame is None:
            return PLAIN, None, None
        key = frame.f_code.co_filename, frame.f_lineno
        counts = lines.setdefault(key, [0, 0, 0])
        counts[0] += 1
        if is_shown(sys._getframe()):  # that is no loop which waits
            return PLAIN, key, counts
        call = id(loop_frame(frame) or frame)
        if counts[1] != call:
            counts[1:] = call, 0
        counts[2] += 1
        late = counts[2] % (PATIENCE + 200) - PATIENCE
        if late < 0 or self.rules.way and self.ends_by_itself(frame):
            return PLAIN, key, counts
        return FALLEN if late < 100 else RISEN, key, counts

    @staticmethod
    def ends_by_itself(frame):
        """Whether the loop is a `for`: runs in which numbers fall, or rise, show all of its turns."""
        where = loop_frame(frame)
        return where is not None and loops.kind_of(where.f_code.co_filename, where.f_lineno) == loops.FOR

    def say_guessed(self, t, state):
        """The program reads whole numbers, or an answer, that follow from guesses: which of them they follow from is not kept, so it may be each."""
        rules, is_number = self.rules, t.dtype is not self.torch.bool
        guesses = [EXPERTS] * (rules.routed and is_number) + [MASKS] * ((rules.agreed or rules.picked) and is_number or rules.counted)
        guesses += [DRAWS] * (rules.drew and is_number and t.numel() <= FEW)
        if state == WORD and is_number and t.numel() == 1:
            self.say_size(counts.NUMBER)
        if state == CHOICE and is_number and not self.said_guesses.issuperset([MASKS]):
            is_word = bool(self.twin(t)[0].double().abs().max() >= WORDS // 2)  # (not each type has these)
            if by_source(counts.is_size, True) if t.numel() > 1 or is_word else True:
                guesses.append(MASKS)
            elif t.numel() > 1 and is_word:
                self.say_size(counts.NUMBERS)
            elif t.numel() > 1 and by_source(counts.is_size, True, counts.NUMBERS):  # `np.where(pred.cpu() == 3)`
                guesses.append(MASKS)
        if not self.said_guesses.issuperset(guesses) and not (t.numel() == 1 and by_source(told.is_only_told, False, t.dtype.is_floating_point)):
            for guess in guesses:
                self.say_routed(guess)

    def say_routed(self, guess):
        """Once of each: the line that reads what follows from such a guess. Of draws, only where it reads nothing else: other draws come with each of the others."""
        if guess in self.said_guesses or guess == DRAWS and self.said_guesses:
            return
        frame = own_frame(sys._getframe(), anywhere=True)
        if frame is not None:
            self.said_guesses.add(guess)
            library.mark("routed", f"{frame.f_code.co_filename}:{frame.f_lineno}", guess)

    def say_open(self, bare):
        """Once: a line that makes a tensor as large as a value says."""
        frame = own_frame(sys._getframe())
        if frame is not None and not self.said_open:
            self.said_open = True
            library.mark("open", f"{frame.f_code.co_filename}:{frame.f_lineno} makes a tensor as large as a value of the card says ({bare}): it may need more", 1)

    def choose_on_host(self, t):
        """An unknown mask chooses on the host: it is as one that chooses on the card."""
        self.keep(t, self.rules.mask(t.shape, self.rules.lacks(t)), GUESS)
        self.say_routed(MASKS)

    def say_size_of_numbers(self, t):
        n = self.span(t)
        state = library.known(t.data_ptr(), n * t.element_size(), self.scratch(n * t.element_size())) if n * t.element_size() <= KNOWN else 0
        if not state and n * t.element_size() <= KNOWN and by_source(counts.is_held_against_thresholds, False):
            self.say_levels()  # (more than that read as zeros in each run)
        elif not state:
            self.say_size(counts.NUMBERS)
        elif state >= GUESS and by_source(counts.is_size, True, counts.NUMBERS):
            self.say_guess_of_size(None, state == CHOICE)

    def say_levels(self):
        """Numbers on the host are held against thresholds, as single ones are: in other runs all of them are on one side, or on the other."""
        frame = own_frame(sys._getframe())
        if frame is not None and self.levels_at is None:
            self.levels_at = f"{frame.f_code.co_filename}:{frame.f_lineno}"

    def say_size(self, what, is_whole=False):
        """Once: a line that makes a size of a number that nothing here knows or bounds, or chooses by numbers on the host, all of them alike here."""
        if not self.said_size and by_source(counts.is_size, True, what, is_whole):
            self.said_size = True
            frame = own_frame(sys._getframe())
            library.mark("open", f"{frame.f_code.co_filename}:{frame.f_lineno} reads {what} that only the card knows, and a size follows from it: it may need more", 1)

    def new_step(self):
        for lines in self.reads, self.compared, self.counted:
            for counts in lines.values():
                counts[2] = 0
        self.orders.new_step()


def bytes_of(number, dtype):
    """A number as a card keeps it; none for a type that is not known here."""
    if dtype in ("complex32", "complex64", "complex128"):
        return 2 * bytes_of(number, {"complex32": "float16", "complex64": "float32", "complex128": "float64"}[dtype])
    if dtype == "bfloat16":
        one = struct.pack("=f", number)
        return one[2:] if sys.byteorder == "little" else one[:2]
    if dtype.startswith("float8"):  # 0.75: not each of them has the others
        return {"float8_e4m3fn": b"\x34", "float8_e5m2": b"\x3a", "float8_e4m3fnuz": b"\x3c", "float8_e5m2fnuz": b"\x3e"}.get(dtype, b"")
    letter = {"float16": "e", "float32": "f", "float64": "d"}.get(dtype)
    return struct.pack("=" + letter, min(max(number, 1e-7), 65504) if letter == "e" and number >= 0 else number) if letter else b""
