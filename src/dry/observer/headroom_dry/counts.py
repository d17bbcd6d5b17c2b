"""What a program does with a number that it reads, by its source: whether it only adds it up, divides by it or shows it, as measures of how good a model is,
or makes a size of it."""
import ast
import functools

from .branches import SPEAKING
from .loops import FUNCTIONS, nodes_of

SHOWING = SPEAKING + "format set_postfix set_description add_scalar add_scalars log_metrics write update".split()
WHOLE = "int round ceil floor range".split()  # what they give may be a size again
CALLERS = 3  # functions that hand on what they read


def is_only_told(frames):
    """Whether the value that the innermost of these frames reads is no size and decides nothing."""
    for frame, _ in zip(frames, range(CALLERS)):
        told = _told_at(frame.f_code.co_filename, frame.f_lineno)
        if told is not None:
            return told
    return False


@functools.lru_cache(maxsize=None)
def _told_at(file, line):
    """None: the function gives it to its caller."""
    held = [n for n in nodes_of(file, ast.stmt) if n.lineno <= line <= (n.end_lineno or n.lineno)]
    return _told_of(file, held[-1], held) if held else False


def _told_of(file, statement, outer):
    """By the statement in which it is read, and those around it, outermost first."""
    if isinstance(statement, ast.Return):
        return None if statement.value is not None and not _is_share(statement.value) else True
    if isinstance(statement, ast.Expr):
        return isinstance(statement.value, ast.Call) and _name(statement.value) in SHOWING
    if isinstance(statement, ast.AugAssign):
        return isinstance(statement.op, (ast.Add, ast.Sub)) and _are_uses_told(file, statement.target, outer)
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        target = statement.targets[0]
        return _is_share(statement.value) or isinstance(target, (ast.Name, ast.Attribute)) and _are_uses_told(file, target, outer)
    return False


def _name(call):
    return getattr(call.func, "attr", None) or getattr(call.func, "id", "")


def _name_or_none(node):
    return _name(node) if isinstance(node, ast.Call) else None


def _is_share(value):
    """A quotient, which is no size."""
    while isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        value = value.right if isinstance(value.left, ast.Constant) else value.left
    return isinstance(value, ast.BinOp) and isinstance(value.op, ast.Div)


def _same(target):
    return ast.dump(target).replace("Store()", "Load()")


def _are_uses_told(file, target, outer):
    """Whether each use of a variable in its function, or of an attribute in its file, divides by it, shows it or adds it to one of which the same is true."""
    functions = [n for n in outer if isinstance(n, FUNCTIONS)]
    scope = functions[-1] if functions and not isinstance(target, ast.Attribute) else None
    wanted, checked = {_same(target)}, set()
    tree = list(ast.walk(scope)) if scope is not None else nodes_of(file, ast.AST)
    parents = {id(child): n for n in tree for child in ast.iter_child_nodes(n)}
    while wanted - checked:
        name = (wanted - checked).pop()
        checked.add(name)
        for n in tree:
            if isinstance(n, (ast.Name, ast.Attribute, ast.Subscript)) and isinstance(n.ctx, ast.Load) and ast.dump(n) == name:
                more = _told_in(n, parents)
                if more is None:
                    return False
                wanted |= more
    return len(checked) < 8


def _told_in(node, parents):
    """Names that take over the value, if this use only shows it, divides by it or adds it up; None: it does not."""
    child, parent = node, parents.get(id(node))
    while parent is not None:
        if isinstance(parent, ast.FormattedValue) or isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Div, ast.Mod)) and not _is_whole(parent, parents):
            return set()
        if isinstance(parent, ast.Call) and child is not parent.func:
            return set() if _name(parent) in SHOWING else None
        if isinstance(parent, ast.AugAssign) and isinstance(parent.op, (ast.Add, ast.Sub)):
            return {_same(parent.target)}
        if not isinstance(parent, (ast.BinOp, ast.Tuple, ast.keyword)):
            return None
        child, parent = parent, parents.get(id(parent))
    return None


def _is_whole(node, parents):
    """Whether a quotient becomes a whole number again, or a remainder is one."""
    if isinstance(node.op, ast.Mod) and not isinstance(node.left, (ast.Constant, ast.JoinedStr)):
        return True
    parent = parents.get(id(node))
    return isinstance(parent, ast.Call) and _name(parent) in WHOLE


SIZES = """empty zeros ones full rand randn randint randperm arange range linspace eye new_empty new_zeros new_ones new_full expand repeat pad resize_ narrow
split one_hot scatter_sum scatter_add scatter_mean bincount""".split()
CHOOSING = "nonzero argwhere flatnonzero where sum count_nonzero compress".split()
READING = "item int float tolist one_hot ceil floor round cpu numpy to".split()
SIZE_WORDS = "size dim_size num_nodes num_classes minlength output_size length max_length".split()


def is_size(frames, of_a_mask=False):
    """Whether the number that the innermost of these frames reads becomes a size, or the mask that it copies to the host chooses there."""
    for frame, _ in zip(frames, range(CALLERS)):
        is_one = _is_size_at(frame.f_code.co_filename, frame.f_lineno, of_a_mask)
        if is_one is not None:
            return is_one
    return False


@functools.lru_cache(maxsize=None)
def _is_size_at(file, line, of_a_mask):
    """None: the function gives it to its caller."""
    held = [n for n in nodes_of(file, ast.stmt) if n.lineno <= line <= (n.end_lineno or n.lineno)]
    if not held:
        return False
    statement = held[-1]
    reads = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and n.lineno <= line <= (n.end_lineno or n.lineno)
             and _name(n) in READING]
    parents = {id(child): n for n in ast.walk(statement) for child in ast.iter_child_nodes(n)}
    if any(_name(n) == "one_hot" and len(n.args) < 2 and not n.keywords or _becomes_size(n, parents, of_a_mask) for n in reads):
        return True
    if isinstance(statement, ast.Return):
        return None
    if not isinstance(statement, ast.Assign) or len(statement.targets) != 1:
        return False
    functions = [n for n in held if isinstance(n, FUNCTIONS)]
    tree = list(ast.walk(functions[-1])) if functions else nodes_of(file, ast.AST)
    parents = {id(child): n for n in tree for child in ast.iter_child_nodes(n)}
    names, checked = {_same(statement.targets[0])}, set()
    while names - checked and len(checked) < 8:
        name = (names - checked).pop()
        checked.add(name)
        for n in tree:
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and ast.dump(n) == name:
                if _becomes_size(n, parents, of_a_mask):
                    return True
                names |= _assigned(n, parents)
    return False


def _becomes_size(node, parents, of_a_mask):
    child, parent = node, parents.get(id(node))
    while parent is not None and not isinstance(parent, ast.stmt):
        if of_a_mask and (isinstance(parent, ast.Subscript) and child is parent.slice or getattr(parent, "attr", "") in CHOOSING
                          or child is not getattr(parent, "func", child) and _name_or_none(parent) in CHOOSING):
            return True
        if isinstance(parent, ast.Slice) or isinstance(parent, ast.keyword) and parent.arg in SIZE_WORDS:
            return True
        if isinstance(parent, ast.Call) and child is not parent.func:
            if _name(parent) in SIZES:
                return True
            if _name(parent) not in WHOLE + ["max", "min", "tuple", "list", "Size"]:
                return False
        if isinstance(parent, (ast.Compare, ast.FormattedValue)):
            return False
        child, parent = parent, parents.get(id(parent))
    return False


def _assigned(node, parents):
    """The variable to which arithmetic with this one is assigned."""
    parent = parents.get(id(node))
    while isinstance(parent, (ast.BinOp, ast.Call)):
        parent = parents.get(id(parent))
    return {_same(parent.targets[0])} if isinstance(parent, ast.Assign) and len(parent.targets) == 1 else set()
