"""Searches of SciPy that read values of the card, as the fit of a Gaussian process does: what they read contradicts itself (each loss is the same, with a
slope), so they end without success, and a program may then try again or give up. They are taken to have found what they looked for."""
import functools
import sys

from . import library
from .frames import own_frame

_said = set()


def begin(after_import, values):
    """`values`: a values.Values, which counts what is read."""
    for where, names in (("_minimize", ("minimize", "minimize_scalar")), ("_root", ("root",))):
        after_import(f"scipy.optimize.{where}", lambda module, names=names: [_successful(module, name, values) for name in names])


def _successful(module, name, values):
    run = getattr(module, name)

    @functools.wraps(run)
    def search(*args, **kwargs):
        before = _reads(values)
        result = run(*args, **kwargs)
        if not getattr(result, "success", True) and _reads(values) != before:
            _say(name)
            result.success, result.status, result.message = True, 0, "a dry run takes it to have converged"
        return result
    package = sys.modules.get("scipy.optimize")
    if getattr(package, name, None) is run:  # it was imported before torch
        setattr(package, name, search)
    setattr(module, name, search)


def _reads(values):
    return sum(counts[0] for counts in list(values.reads.values()))  # another thread may read meanwhile


def _say(name):
    frame = own_frame(sys._getframe())
    line = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "the program"
    if line not in _said:
        _said.add(line)
        library.mark("note", f"{line}: SciPy's {name} goes by values of the card; it is taken to have converged")
