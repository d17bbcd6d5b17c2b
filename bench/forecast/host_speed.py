"""How fast a host is, without a card and without PyTorch: the microseconds that Python takes for a fixed piece of work."""
import math
import time

REFERENCE_US = 1.2  # of the host whose costs the forecasts of programs know


class Thing:
    def __init__(self):
        self.weight, self.children = 1.5, {"a": 1, "b": 2}

    def __call__(self, x, *rest, **names):
        return self.forward(x, *rest, **names)

    def forward(self, x, scale=None, **names):
        return x if scale is None else x * scale


def python_work(rounds):
    """Calls, attributes, dictionaries and small tuples, about as a training loop's Python has them."""
    thing, total, kept = Thing(), 0, {}
    for i in range(rounds):
        total += thing(i, scale=2, other=None)
        if isinstance(total, int) and hasattr(thing, "weight"):
            kept[i & 63] = (total, thing.children.get("a", 0))
        total = sum([n for _, n in (kept[i & 63], (1, 2))]) & 0xffff
    return total


def python_us(rounds, repeats):
    """Microseconds of a round, the best of the repeats."""
    best = math.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        python_work(rounds)
        best = min(best, time.perf_counter() - begin)
    return best / rounds * 1e6


def host_us():
    """A careful measurement: a fifth of a second."""
    return python_us(20_000, 7)


def host_us_now():
    """A quick one, three milliseconds, to stand beside a measurement of something else."""
    return python_us(800, 3)
