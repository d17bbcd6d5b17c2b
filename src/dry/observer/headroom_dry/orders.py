"""Which of several samples, or models, has the least of a number of the card or the most: a program that sorts them so, and then works with the first, needs
what that one needs. Nothing here knows which it is. So in two other runs the order is that of the bytes that were asked for before each number was read: the
largest sample has the least number in one, and the most in the other. Numbers that come to the host together, or of which the card chooses one, are in the order
of the items of a list beside them (items.py)."""
import math

from . import items, library

LESS, MORE = "less", "more"  # the number of what asked for most bytes
MANY = 64  # places that are kept
LARGER = 1.2  # so many times as many bytes are more, if these are more than small blocks


class Orders:
    def __init__(self, way):
        self.way = way
        self.asked = {}  # by line that reads such numbers: the bytes that were asked for until its last read in this step
        self.least, self.most = {}, {}  # by line: the bytes that were asked for between two of its reads
        self.before = 0  # the latest read
        self.have_items = False  # numbers came to the host together for which there is an item each, of other sizes
        self.chosen = {}  # where the card puts which items its numbers choose, of a list whose items differ: from where to where
        self.chosen_at = None  # the first line that reads one

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

    def note_chosen(self, begin, bytes):
        if len(self.chosen) >= MANY:
            self.chosen.clear()
        self.chosen[begin] = begin + bytes

    def is_chosen(self, at):
        return any(begin <= at < end for begin, end in self.chosen.items())

    def differ(self):
        """Whether numbers are of samples that differ in size."""
        return self.have_items or any(most > LARGER * self.least[line] + (1 << 16) for line, most in self.most.items())

    def share(self, usual):
        """Of the usual number: the one that was read now, between half of it and 1."""
        size = math.log2(1 + self.before / 512) / 64
        return 1 - size if self.way == LESS else (1 - (1 - usual) * (1 - size)) / usual

    def shares(self, many, usual):
        """Of the usual number: each of so many that are read together, in the order of the items beside them. None: there are none that differ."""
        places = items.by_size(many)
        if places is None:
            return None
        self.have_items = True
        rank = {place: i / many for i, place in enumerate(places)}
        return [1 - rank[i] / 2 if self.way == LESS else (1 - (1 - usual) * (1 - rank[i])) / usual for i in range(many)] if self.way else None

    def places(self, many, largest):
        """The places of so many numbers from the largest to the smallest one, or from the smallest: by the items beside them. None: there are none that differ."""
        places = items.by_size(many)
        return places if places is None or largest == (self.way == LESS) else places[::-1]
