"""A function, with what it refers to, carried into another process. Functions and classes of modules that can be imported go by name; those of a
notebook or a script (`__main__`), and functions within functions, go with their code. Both processes run the same Python."""

import importlib
import io
import marshal
import pickle
import sys
import types


def _cells(count):
    return tuple(types.CellType() for _ in range(count))


def _new_function(code, name, free):
    return types.FunctionType(marshal.loads(code), {"__builtins__": __builtins__, "__name__": "__main__"}, name, None, _cells(free))


def _fill_function(function, state):
    function.__globals__.update(state["globals"])
    function.__defaults__, function.__kwdefaults__ = state["defaults"], state["kwdefaults"]
    function.__dict__.update(state["dict"])
    function.__qualname__, function.__module__ = state["qualname"], state["module"]
    for cell, (there, value) in zip(function.__closure__ or (), state["closure"]):
        if there:
            cell.cell_contents = value


def _new_class(meta, name, bases):
    return types.new_class(name, bases, {"metaclass": meta})


def _fill_class(cls, members):
    for name, value in members.items():
        setattr(cls, name, value)


def _names(code):
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _content(cell):
    try:
        return True, cell.cell_contents
    except ValueError:
        return False, None


def _by_name(thing):
    if thing.__module__ in ("__main__", None) or "<locals>" in thing.__qualname__ or thing.__name__ == "<lambda>":
        return False
    found = sys.modules.get(thing.__module__)
    for part in thing.__qualname__.split("."):
        found = getattr(found, part, None)
    return found is thing


class _Carrier(pickle.Pickler):
    def reducer_override(self, thing):
        if isinstance(thing, types.ModuleType):
            return importlib.import_module, (thing.__name__,)
        if isinstance(thing, types.FunctionType) and not _by_name(thing):
            code = thing.__code__
            state = {
                "globals": {n: thing.__globals__[n] for n in _names(code) if n in thing.__globals__},
                "closure": [_content(c) for c in thing.__closure__ or ()],
                "defaults": thing.__defaults__,
                "kwdefaults": thing.__kwdefaults__,
                "dict": thing.__dict__,
                "qualname": thing.__qualname__,
                "module": thing.__module__,
            }
            return _new_function, (marshal.dumps(code), thing.__name__, len(code.co_freevars)), state, None, None, _fill_function
        if isinstance(thing, type) and not _by_name(thing):
            members = {k: v for k, v in vars(thing).items() if k not in ("__dict__", "__weakref__")}
            return _new_class, (type(thing), thing.__name__, thing.__bases__), members, None, None, _fill_class
        if isinstance(thing, property):
            return property, (thing.fget, thing.fset, thing.fdel, thing.__doc__)
        if isinstance(thing, (staticmethod, classmethod)):
            return type(thing), (thing.__func__,)
        return NotImplemented


def packed(call):
    """Bytes of a call: (function, args, kwargs)."""
    into = io.BytesIO()
    _Carrier(into, protocol=4).dump(call)
    return into.getvalue()


def run(file):
    """In the other process."""
    with open(file, "rb") as f:
        path = pickle.load(f)
        sys.path[:] = path
        function, args, kwargs = pickle.load(f)
    function(*args, **kwargs)


if __name__ == "__main__":
    run(sys.argv[1])
