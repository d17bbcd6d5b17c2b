"""Whether a program makes a size of a number that it reads, or chooses by a mask that it copies to the host, by its source."""
import ast
import functools

from .branches import name_of
from .loops import FUNCTIONS, nodes_of

WHOLE = "int round ceil floor range sum count_nonzero item".split()  # what they give may be a size again
CALLERS = 3  # functions that hand on what they read

SIZES = """empty zeros ones full rand randn randint randperm arange range linspace eye new_empty new_zeros new_ones new_full expand repeat pad resize_ narrow
split one_hot scatter_sum scatter_add scatter_mean bincount""".split()
CHOOSING = "nonzero argwhere flatnonzero where compress".split()
READING = "item int float tolist one_hot ceil floor round cpu numpy to".split()
SIZE_WORDS = "size dim_size num_nodes num_classes minlength output_size length max_length".split()


def is_size(frames, of_a_mask=False):
    """Whether the number that the innermost of these frames reads becomes a size, or the mask that it copies to the host chooses there."""
    for frame, outwards in zip(frames, range(CALLERS)):
        is_one = _is_size_at(frame.f_code.co_filename, frame.f_lineno, of_a_mask, outwards == 0)
        if is_one is not None:
            return is_one
    return False


@functools.lru_cache(maxsize=None)
def _is_size_at(file, line, of_a_mask, reads_itself):
    """None: the function gives it to its caller."""
    held = [n for n in nodes_of(file, ast.stmt) if n.lineno <= line <= (n.end_lineno or n.lineno)]
    if not held:
        return False
    statement = held[-1]
    reads = [n for n in ast.walk(statement) if isinstance(n, ast.Call) and n.lineno <= line <= (n.end_lineno or n.lineno)
             and name_of(n) in READING]
    if reads_itself and not reads:
        return False
    parents = {id(child): n for n in ast.walk(statement) for child in ast.iter_child_nodes(n)}
    if any(name_of(n) == "one_hot" and len(n.args) < 2 and not n.keywords or _becomes_size(n, parents, of_a_mask) for n in reads):
        return True
    if isinstance(statement, ast.Return):
        return None
    targets = _targets(statement)
    if len(targets) != 1:
        return False
    functions = [n for n in held if isinstance(n, FUNCTIONS)]
    tree = list(ast.walk(functions[-1])) if functions else nodes_of(file, ast.AST)
    parents = {id(child): n for n in tree for child in ast.iter_child_nodes(n)}
    names, checked = {_same(targets[0])}, set()
    while names - checked and len(checked) < 8:
        name = (names - checked).pop()
        checked.add(name)
        for n in tree:
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and _same(n) == name:
                if _becomes_size(n, parents, of_a_mask):
                    return True
                names |= _assigned(n, parents)
    return False


def _becomes_size(node, parents, of_a_mask):
    child, parent = node, parents.get(id(node))
    while parent is not None and not isinstance(parent, ast.stmt):
        if of_a_mask and (isinstance(parent, ast.Subscript) and child is parent.slice or getattr(parent, "attr", "") in CHOOSING
                          or child is not getattr(parent, "func", child) and name_of(parent) in CHOOSING):
            return True
        if isinstance(parent, ast.Slice) or isinstance(parent, ast.keyword) and parent.arg in SIZE_WORDS:
            return True
        if isinstance(parent, ast.Call) and child is not parent.func:
            if name_of(parent) in SIZES:
                return True
            if name_of(parent) not in WHOLE + ["max", "min", "tuple", "list", "Size"]:
                return False
        if isinstance(parent, (ast.Compare, ast.FormattedValue)):
            return False
        child, parent = parent, parents.get(id(parent))
    return False


def _assigned(node, parents):
    """The variable to which arithmetic with this one is assigned or added."""
    parent = parents.get(id(node))
    while isinstance(parent, (ast.BinOp, ast.Call, ast.Attribute)) and name_of(parent) != "len":
        parent = parents.get(id(parent))
    targets = _targets(parent)
    return {_same(targets[0])} if len(targets) == 1 else set()


def _targets(statement):
    return statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, ast.AugAssign) else []


def _same(node):
    """Equal for nodes that read or set one variable."""
    if isinstance(node, ast.Name):
        return node.id
    return (_same(node.value), node.attr) if isinstance(node, ast.Attribute) else ast.dump(node)
