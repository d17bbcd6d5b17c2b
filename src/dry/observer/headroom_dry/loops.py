"""The loop that a line of the program is in, by its source: how often a value may be read there before nothing but that value can end it."""
import ast
import linecache
import warnings

ENDLESS, WHILE, FOR = "endless", "while", "for"  # ENDLESS: only the test, which reads the value, ends it
FUNCTIONS = ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda
FORS = ast.For, ast.AsyncFor, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp

_files = {}  # by name: its loops and functions, outermost first
_kinds = {}  # by file and line


def nodes_of(file, kinds):
    """What of these kinds a file's source has, outermost first. What Python warns of there (an unknown escape), it says itself as it compiles the file."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [n for n in ast.walk(ast.parse("".join(linecache.getlines(file)))) if isinstance(n, kinds)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return []


def _nodes(file):
    if file not in _files:
        _files[file] = nodes_of(file, FUNCTIONS + FORS + (ast.While,))
    return _files[file]


def _within(node, line):
    return node.lineno <= line <= (node.end_lineno or node.lineno)


def _leaves(nodes, breaks=True):
    """Whether something in a loop's body ends it, or its function, or waits outside of it."""
    for s in nodes:
        if isinstance(s, (ast.Return, ast.Raise, ast.Yield, ast.YieldFrom, ast.Await)) or (breaks and isinstance(s, ast.Break)):
            return True
        if isinstance(s, FUNCTIONS + (ast.ClassDef,)):
            continue
        own = breaks and not isinstance(s, (ast.For, ast.AsyncFor, ast.While))  # a break in there is that loop's
        if _leaves(ast.iter_child_nodes(s), own):
            return True
    return False


def is_test(file, line):
    """Whether this line is in the test of a `while`."""
    return any(isinstance(n, ast.While) and _within(n.test, line) for n in _nodes(file))


def kind_of(file, line):
    """Of the innermost loop that this line is in, within its function; None: in none."""
    if (file, line) in _kinds:
        return _kinds[file, line]
    innermost = kind = None
    for node in _nodes(file):
        if not _within(node, line) or (innermost is not None and not (_within(innermost, node.lineno) and _within(innermost, node.end_lineno))):
            continue
        innermost = node
        if isinstance(node, FUNCTIONS):
            kind = None
        elif isinstance(node, FORS):
            kind = FOR
        else:
            only_it = not (isinstance(node.test, ast.BoolOp) and isinstance(node.test.op, ast.And))
            kind = ENDLESS if _within(node.test, line) and only_it and not _leaves(node.body) else WHILE
    _kinds[file, line] = kind
    return kind
