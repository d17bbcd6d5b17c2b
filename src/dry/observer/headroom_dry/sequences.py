"""The numbers that stand for unknown ones in other runs, read after read: each as a share of the usual number. A way is a word and what belongs to it:
`above:200`, `between:0.8,1.7`, `soars:16`."""
import math

TURNS = 4  # after so many reads a falling count is half of the first
FIRST, STEEP, LESS = 16 / 3, 10, 0.6  # a float falls from 4 to below 0.03 in its first reads: past the thresholds that losses are held against
SHARE = 6 / 5  # a share falls from 0.9: where a number is taken for one, 4 is none
NEARLY, LITTLE = 4 / 3, 4e-6 / 3  # nearly 1, from 0.000001 downwards
SIDES = {"above": 2, "likely": 1.96, "little": 0, "below": 0}  # of a count, for which half of a mask is true: all, nearly all, nothing
GREAT, SMALL, HIGH = 1e37, 1e-37, 1e9  # between these numbers jump; one that plunges begins high, so that it falls by more than any margin
JUMPS = "soars swells plunges dives".split()  # upwards and downwards; the second of each stays below 1


class Sequence:
    """`usual`: the usual number."""

    def __init__(self, way, usual):
        self.way, _, numbers = way.partition(":")
        self.numbers = [float(n) for n in numbers.split(",")] if numbers else []
        self.usual, self.turns = usual, 0

    def __bool__(self):
        return bool(self.way)

    def share(self, least=None):
        """Of the usual number: what the next one is. `least`: of a count, which is no more than it is; where a rising one begins. Else a rising one goes from
        all of it to a third more."""
        turn, self.turns = self.turns, self.turns + 1
        return self.number(turn) / self.usual if least is None else self.of_count(turn, least)

    def of_count(self, turn, least):
        """Of a count, for which half of a mask is true, or of a share."""
        if self.way in SIDES:
            return SIDES[self.way]
        if self.way == "between":
            part = self.numbers[turn % len(self.numbers)]
            return 2 * part if 0 < part < 1 else part / 50 if 0 < part < 100 else 1  # a share, or one in percent
        if self.way in JUMPS:
            return 2 * (turn % 2)
        down = 1 / (1 + turn / TURNS)
        return down if self.way in ("falls", "shares") else 1 - (1 - least) * down

    def number(self, turn):
        down = 1 / (1 + turn / TURNS)
        if self.way in ("above", "below"):
            return (self.numbers or [self.usual * (400 if self.way == "above" else -4) / 3])[0] * (2 - down)  # from 100 upwards, from -1 downwards
        if self.way in ("likely", "little"):
            return self.usual * (NEARLY * (1 - 0.01 * down) if self.way == "likely" else LITTLE * down)
        if self.way == "between":
            return self.numbers[turn % len(self.numbers)]
        if self.way in JUMPS:
            return self.jump(turn)
        if self.way in ("falls", "shares"):
            first = FIRST if self.way == "falls" else SHARE
            return self.usual * first * LESS ** min(turn, STEEP) / (1 + max(turn - STEEP, 0) / TURNS)
        return self.usual * (4 - down) / 3

    def jump(self, turn):
        """Each number is so many times the one before; when there is no larger, or smaller, one, they begin again."""
        factor = self.numbers[0] if self.numbers else 16
        first, last = {"soars": (self.usual, GREAT), "swells": (SMALL, 1), "plunges": (HIGH, SMALL), "dives": (0.9, SMALL)}[self.way]
        turns = max(int(math.log(max(first, last) / min(first, last), factor)), 1)
        return first * factor ** (turn % turns * (1 if last > first else -1))
