"""What an `if` that asks whether any of a mask is true goes on to do, by its source: work on those places, or say that something is wrong."""
import ast
import functools
import inspect
import types

from .loops import FUNCTIONS, nodes_of

SPEAKING = "print warn warning info debug error exception critical log".split()
ENDING = "exit _exit quit abort fail".split()
LEAVING = ast.Return, ast.Continue, ast.Break


@functools.lru_cache(maxsize=None)
def _ifs(file):
    """Each `if` of a file, and what comes after it in its block."""
    found = []
    for n in nodes_of(file, ast.AST):
        if isinstance(n, ast.IfExp):
            found.append((n, []))
        for block in (getattr(n, name, None) for name in ("body", "orelse", "finalbody")):
            if isinstance(block, list):
                found += [(s, block[i + 1:]) for i, s in enumerate(block) if isinstance(s, ast.If)]
    return found


def _masks(test):
    """What a test asks `any` of: `mask.any()`, `torch.any(mask)`."""
    for n in ast.walk(test):
        if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.func.attr == "any":
            of_torch = isinstance(n.func.value, ast.Name) and n.func.value.id == "torch"
            if not of_torch or n.args:
                yield n.args[0] if of_torch else n.func.value


def _listed(branch):
    return branch if isinstance(branch, list) else [branch]


def name_of(call):
    """The last word of what is called; empty: this is no call, or of nothing that has a name."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""


def _complains(branch, function_of):
    if any(isinstance(n, (ast.Raise, ast.Assert)) or _ends(name_of(n)) for s in branch for n in ast.walk(s)):
        return True
    return any(_raises(function_of(s.value)) for s in branch if _is_bare_call(s))


def _is_bare_call(s):
    """A statement that calls something and takes nothing from it."""
    return isinstance(s, ast.Expr) and isinstance(s.value, ast.Call)


def _raises(function):
    """Whether a function, if its source is known, ends in an error whatever it is given: in its last statement. One that asserts goes on where that holds."""
    if function is None:
        return False
    last = function.body[-1]
    return isinstance(last, ast.Raise) or _is_bare_call(last) and (name_of(last.value) in ENDING or "raise" in name_of(last.value))


def _only_speaks(function):
    """Whether a function, if its source is known, says something and changes nothing that it is given."""
    if function is None:
        return False
    nodes = [n for s in function.body for n in ast.walk(s)]
    works = any(isinstance(n, (ast.Subscript, ast.Attribute)) and isinstance(n.ctx, ast.Store)
                or isinstance(n, ast.Return) and not isinstance(n.value, (ast.Constant, type(None)))
                or _is_bare_call(n) and not _spoken(n) or name_of(n).endswith("_") for n in nodes)
    return not works and any(name_of(n) in SPEAKING for n in nodes)


def _ends(name):
    """Whether a function of this name may end the program."""
    return name in ENDING or "assert" in name or "raise" in name


def _spoken(s):
    """A statement that only prints or logs."""
    return isinstance(s, ast.Expr) and name_of(s.value) in SPEAKING


def _only_says_so(rest):
    """Whether what comes after `if not bad.any(): return` says that something is wrong: it raises, or speaks and returns a constant."""
    if any(isinstance(s, ast.Raise) or isinstance(s, ast.Expr) and _ends(name_of(s.value)) for s in rest):
        return True
    left = [s for s in rest if not _spoken(s)]
    return bool(rest) and all(isinstance(s, ast.Return) and (s.value is None or isinstance(s.value, ast.Constant)) for s in left)


def _works_on(branch, mask, function_of):
    same = ast.dump(mask)
    silent = [s for s in branch if not _spoken(s) and not (_is_bare_call(s) and _only_speaks(function_of(s.value)))]
    return any(isinstance(n, type(mask)) and ast.dump(n) == same for s in silent for n in ast.walk(s))


def _function_called(call, frame, owner):
    """The source of a function or method that a call of this frame's runs; None: not found. Nothing of the program is run for that."""
    words, at = [], call.func
    while isinstance(at, ast.Attribute):
        words.append(at.attr)
        at = at.value
    if not isinstance(at, ast.Name):
        return None
    words.append(at.id)
    value = owner(frame) if at.id == "self" else frame.f_globals.get(at.id)
    if value is None and len(words) == 1:  # a function that is made in this one
        made = [c for c in frame.f_code.co_consts if isinstance(c, types.CodeType) and c.co_name == at.id]
        return _definition(made[0]) if made else None
    for word in reversed(words[:-1]):
        value = inspect.getattr_static(value, word, None)
    value = getattr(value, "__func__", value) if isinstance(value, (staticmethod, classmethod)) else value
    return _definition(value.__code__) if isinstance(value, types.FunctionType) else None


@functools.lru_cache(maxsize=None)
def _definition(code):
    named = [n for n in nodes_of(code.co_filename, FUNCTIONS) if getattr(n, "name", "") == code.co_name]
    first = lambda n: min([n.lineno] + [d.lineno for d in n.decorator_list])
    return next((n for n in named if first(n) == code.co_firstlineno), None)


_known = {}  # by file and line


def works_on_any(frame, owner):
    """Whether this frame is at the test of an `if` whose body works on the places that the mask has, or leaves where there are none. `owner(frame)`: the
    object whose method it is."""
    where = frame.f_code.co_filename, frame.f_lineno
    if where not in _known:
        _known[where] = _works_on_any(*where, lambda call: _function_called(call, frame, owner))
    return _known[where]


def asks_a_mask(branch):
    """Whether an `if` asks whether any of a mask is true: how often a loop goes on by that, Rules say."""
    return any(True for _ in _masks(branch.test))


def works_on_its_mask(branch):
    """Whether an `if` asks whether any of a mask is true and works on these places: what Rules take for true says how much that is."""
    return any(_works_on(_listed(branch.body), mask, lambda call: None) for mask in _masks(branch.test))


def goes_on(frames):
    """Whether the innermost of these frames is at the test of an `if` that does not say that something is wrong."""
    frame = next(iter(frames))
    return _goes_on(frame.f_code.co_filename, frame.f_lineno)


@functools.lru_cache(maxsize=None)
def _goes_on(file, line):
    at = [n for n, _ in _ifs(file) if n.test.lineno <= line <= (n.test.end_lineno or n.test.lineno)]
    return bool(at) and not any(_complains(_listed(branch), lambda call: None) for n in at for branch in (n.body, n.orelse) if branch)


def _works_on_any(file, line, function_of):
    for n, rest in _ifs(file):
        if not n.test.lineno <= line <= (n.test.end_lineno or n.test.lineno):
            continue
        body, other = _listed(n.body), _listed(n.orelse)
        none = isinstance(n.test, ast.UnaryOp) and isinstance(n.test.op, ast.Not)  # `if not mask.any()`
        work = other if none else body
        for mask in _masks(n.test):
            if _works_on(work, mask, function_of) and not _complains(work, function_of):
                return True
            if none and any(isinstance(s, ast.Raise) or isinstance(s, LEAVING) and not _only_says_so(other or rest) for s in body):
                return True
    return False
