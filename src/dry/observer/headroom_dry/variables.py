"""The variables of a frame, one by one: its f_locals would keep all of them, tensors too, for as long as it runs."""
import ctypes
import inspect
import sys
import types

from . import layout

# From 3.12 on a door of Python's; before, where a frame keeps them.
_variable = getattr(ctypes.pythonapi, "PyFrame_GetVarString", None)
if _variable is not None:
    _variable.argtypes, _variable.restype = (ctypes.py_object, ctypes.c_char_p), ctypes.py_object


class _Kept:
    """Where a frame keeps its variables, in versions before 3.12."""

    def __init__(self):
        try:
            self.offset = layout.learn().frame_first
        except (StopIteration, ValueError, OSError, AttributeError, TypeError):
            self.offset = None

    def value(self, frame, number, at_any_cost):
        """Of a variable of the frame's function; NameError: it has none now. `at_any_cost`: by f_locals, where there is no other way."""
        name = frame.f_code.co_varnames[number]
        if self.offset is None or (sys.version_info < (3, 11) and name in frame.f_code.co_cellvars):  # a cell is elsewhere
            return frame.f_locals[name] if at_any_cost else None
        within = ctypes.c_void_p.from_address(id(frame) + 24).value if sys.version_info >= (3, 11) else id(frame)
        address = ctypes.c_void_p.from_address(within + self.offset + number * ctypes.sizeof(ctypes.c_void_p)).value
        if not address:
            raise NameError(name)
        found = ctypes.cast(address, ctypes.py_object).value
        return found.cell_contents if type(found) is types.CellType else found


_kept = _Kept() if _variable is None else None


def _value(frame, number, at_any_cost=False):
    try:
        return _kept.value(frame, number, at_any_cost) if _variable is None else _variable(frame, frame.f_code.co_varnames[number].encode())
    except (NameError, ValueError, KeyError):  # deleted, or not set yet
        return None


def owner(frame):
    """The object whose method it is; None: it is no method."""
    return _value(frame, 0, True) if "self" in frame.f_code.co_varnames[:1] else None


def variables_of(frame):
    """What the variables of a frame are: of a function's, of a file's, or of a class's body."""
    if frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function's
        return [_value(frame, i) for i in range(len(frame.f_code.co_varnames))]
    return list(frame.f_locals.values())
