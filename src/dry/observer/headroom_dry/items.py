"""Lists of a program that have an item for each of some numbers of the card: its samples, documents, or layers. Where these differ in size, the program needs
what the item needs that the numbers choose (`docs[scores.argmax().item()]`, `ranked = sorted(zip(losses.tolist(), samples))`). Nothing here knows which that
is, so in the two other runs of orders.py the largest item has the least number, or the most."""
import sys

from .frames import asking_frames, is_own
from .variables import owner, variables_of

MOST_ITEMS = 4096
CALLERS = 3  # functions of the program whose variables are looked at
LARGER = 1.2
INSIDE, DEPTH = 64, 2  # items of an item


def size_of(item, depth=DEPTH):
    """About how large it is: in bytes, or a number itself. Nothing of the program runs for that."""
    kind = type(item)
    if kind is int:
        return abs(item)
    if kind in (str, bytes, list, tuple):
        inside = item[:INSIDE] if depth and kind in (list, tuple) else ()
        return len(item) + sum(size_of(x, depth - 1) for x in inside if type(x) is not int)
    if hasattr(kind, "nbytes") and kind.__module__.split(".")[0] in ("torch", "numpy"):  # a tensor, or an array
        return int(item.nbytes)
    of = item if kind is dict else getattr(item, "__dict__", None)
    return sum(size_of(x, depth - 1) for x in list(of.values())[:INSIDE]) if depth and type(of) is dict else 0


def by_size(many):
    """The places of the items of a list that has so many, the smallest first; None: there is no such list, or its items are alike. Of several lists that
    whose items differ most."""
    if not 1 < many <= MOST_ITEMS:
        return None
    most, chosen = 0, None
    for items in _lists_of(many):
        sizes = [size_of(x) for x in items]
        least, largest = min(sizes), max(sizes)
        if largest > LARGER * least and largest - least > most:
            most, chosen = largest - least, sizes
    return None if chosen is None else sorted(range(many), key=chosen.__getitem__)


def _lists_of(many):
    frames = [f for f in asking_frames(sys._getframe()) if is_own(f.f_code.co_filename)][:CALLERS]
    seen = set()
    for frame in frames:
        of_self = getattr(owner(frame), "__dict__", None)
        names = variables_of(frame) + list(of_self.values() if type(of_self) is dict else ())
        if frame is frames[-1]:
            names += list(frame.f_globals.values())
        for value in names:
            if type(value) in (list, tuple) and len(value) == many and id(value) not in seen:
                seen.add(id(value))
                yield value
