"""Which of several samples, or models, has the least of a number of the card or the most: a program that sorts them so, and then works with the first, needs
what that one needs. Nothing here knows which it is. So in two other runs the order is that of the bytes that were asked for before each number was read: the
largest sample has the least number in one, and the most in the other."""
import math

from . import library

LESS, MORE = "less", "more"  # the number of what asked for most bytes
LARGER = 1.2  # so many times as many bytes are more, if these are more than small blocks


class Orders:
    def __init__(self, way):
        self.way = way
        self.asked = {}  # by line that reads such numbers: the bytes that were asked for until its last read in this step
        self.least, self.most = {}, {}  # by line: the bytes that were asked for between two of its reads
        self.before = 0  # the latest read

    def read(self, line):
        """Such a number is read by this line."""
        if library.asked is None or line is None:
            return
        now, last = library.asked(), self.asked.get(line)
        self.before = now - last if last is not None else 0  # (what came before the first of them is not its own)
        self.asked[line] = now
        if last is not None:
            self.least[line] = min(self.before, self.least.get(line, self.before))
            self.most[line] = max(self.before, self.most.get(line, self.before))

    def new_step(self):
        self.asked.clear()

    def differ(self):
        """Whether a line's numbers are of samples that differ in size."""
        return any(most > LARGER * self.least[line] + (1 << 16) for line, most in self.most.items())

    def share(self, usual):
        """Of the usual number: the one that was read now, between half of it and 1."""
        size = math.log2(1 + self.before / 512) / 64
        return 1 - size if self.way == LESS else (1 - (1 - usual) * (1 - size)) / usual
