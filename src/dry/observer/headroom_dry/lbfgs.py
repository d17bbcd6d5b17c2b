"""LBFGS ends its searches by values of the card, and keeps directions of the last ones. As the program runs it searches least. In the runs that its line
makes (HEADROOM_DRY_ROUTING) it goes on until its own limits: all its iterations in each step, and in each one some evaluations along the line."""
import functools
import os
import sys

from . import library
from .frames import own_frame
from .rules import SEARCHES

ALONG_A_LINE = 3  # evaluations after the first one: with fewer a bracket and what was before it are not held at once
LONGEST = os.environ.get("HEADROOM_DRY_ROUTING", "random").partition("+")[0] != "random"
_said = False


class _Never:
    """A tolerance that no value meets, on either side of a comparison, nor any multiple of it."""

    def __neg__(self):
        return self

    def __mul__(self, value):
        return self

    def no(self, value):
        return False

    __lt__ = __le__ = __gt__ = __ge__ = no


def say():
    """Once: the line that searches."""
    global _said
    frame = None if _said else own_frame(sys._getframe(), anywhere=True)
    if frame is not None:
        _said = True
        library.mark("routed", f"{frame.f_code.co_filename}:{frame.f_lineno}", SEARCHES)


def lengthen(lbfgs):
    """`lbfgs`: the module of torch.optim."""
    if LONGEST:
        lbfgs.LBFGS.step = _as_long_as_it_may(lbfgs.LBFGS.step)
        lbfgs._strong_wolfe = _along_a_line(lbfgs._strong_wolfe)


def _as_long_as_it_may(step):
    @functools.wraps(step)
    def long(self, closure):
        group = self.param_groups[0]
        own = {name: group[name] for name in ("tolerance_grad", "tolerance_change", "max_eval")}
        group.update(tolerance_grad=_Never(), tolerance_change=_Never(), max_eval=sys.maxsize)
        try:
            return step(self, closure)
        finally:
            group.update(own)
    return long


def _along_a_line(search):
    @functools.wraps(search)
    def along(*args, max_ls=ALONG_A_LINE, **named):
        return search(*args, max_ls=min(max_ls, ALONG_A_LINE), **{**named, "c2": _Never(), "tolerance_change": _Never()})
    return along
