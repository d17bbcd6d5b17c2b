"""What an `if` that asks whether any of a mask is true goes on to do, by its source: work on those places, or say that something is wrong."""
import ast
import functools

from .loops import nodes_of

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


def _name(call):
    """The last word of what is called."""
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "") if isinstance(call, ast.Call) else ""


def _complains(branch):
    return any(isinstance(n, (ast.Raise, ast.Assert)) or _ends(_name(n)) for s in branch for n in ast.walk(s))


def _ends(name):
    """Whether a function of this name may end the program."""
    return name in ENDING or "assert" in name or "raise" in name


def _spoken(s):
    """A statement that only prints or logs."""
    return isinstance(s, ast.Expr) and _name(s.value) in SPEAKING


def _only_says_so(rest):
    """Whether what comes after `if not bad.any(): return` says that something is wrong: it raises, or speaks and returns a constant."""
    if any(isinstance(s, ast.Raise) or isinstance(s, ast.Expr) and _ends(_name(s.value)) for s in rest):
        return True
    left = [s for s in rest if not _spoken(s)]
    return bool(rest) and all(isinstance(s, ast.Return) and (s.value is None or isinstance(s.value, ast.Constant)) for s in left)


def _works_on(branch, mask):
    same = ast.dump(mask)
    return any(isinstance(n, type(mask)) and ast.dump(n) == same for s in branch if not _spoken(s) for n in ast.walk(s))


@functools.lru_cache(maxsize=None)
def works_on_any(file, line):
    """Whether this line is in the test of an `if` whose body works on the places that the mask has, or leaves where there are none."""
    for n, rest in _ifs(file):
        if not n.test.lineno <= line <= (n.test.end_lineno or n.test.lineno):
            continue
        body, other = _listed(n.body), _listed(n.orelse)
        none = isinstance(n.test, ast.UnaryOp) and isinstance(n.test.op, ast.Not)  # `if not mask.any()`
        work = other if none else body
        for mask in _masks(n.test):
            if _works_on(work, mask) and not _complains(work):
                return True
            if none and any(isinstance(s, ast.Raise) or isinstance(s, LEAVING) and not _only_says_so(other or rest) for s in body):
                return True
    return False
