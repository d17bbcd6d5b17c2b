"""Whether a program makes a size of a number that it reads, or chooses by a mask or by numbers that it copies to the host, by its source."""
import ast
import functools

from .branches import SPEAKING, name_of
from .frames import spot_of
from .loops import FUNCTIONS, nodes_of

WHOLE = "int round ceil floor range sum count_nonzero item long".split()  # what they give may be a size again
MOST_NAMES = 12
CALLERS = 3  # functions that hand on what they read

SIZES = """empty zeros ones full rand randn randint randperm arange range linspace eye new_empty new_zeros new_ones new_full expand repeat pad resize_ narrow
split one_hot scatter_sum scatter_add scatter_mean bincount topk tile chunk tensor_split view reshape unflatten islice sample""".split()
CHOOSING = "nonzero argwhere flatnonzero where compress".split()
READING = "item int float tolist one_hot ceil floor round cpu numpy to".split()
READING_ITSELF = "bincount one_hot scatter_sum scatter_add scatter_mean".split()  # on the card, which is told where that is
SIZE_WORDS = "size dim_size num_nodes num_classes minlength output_size length max_length num_samples".split()
KEEPING = "append extend add insert".split()
MADE_WHOLE = "int round ceil floor long".split()
PASSED = WHOLE + "max min abs tuple list Size enumerate zip sorted reversed float tolist item cpu numpy array asarray set Counter most_common values".split()
ARITHMETIC = "log log2 log10 log1p sqrt exp pow".split()  # passes a number on, if it is made whole then
SHOWN = SPEAKING + """append extend add insert abs float str repr len bool isinstance format join write log set_postfix set_description update add_scalar
log_metric isfinite isnan isinf sqrt exp log10 log2 tensor decode batch_decode""".split()

NUMBER, NUMBERS, MASK = "a number", "numbers", "a mask"  # what is read
BESIDE = "numbers, but for what is held against a threshold"
ORDERING = ast.Lt, ast.LtE, ast.Gt, ast.GtE
held_against = {}  # by file: the numbers of its source that numbers on the host were held against


def is_held_against_thresholds(frames):
    """Whether the numbers that the innermost of these frames copies to the host choose there by being above, or below, a number of the source alone."""
    frames = list(frames)
    return is_size(frames, NUMBERS) and not is_size(frames, BESIDE)


def is_size(frames, what=NUMBER, is_whole=False):
    """Whether the number that the innermost of these frames reads becomes a size, or the mask, or the numbers, that it copies to the host choose there. A whole
    number, or one that is made whole, may be one in a function to which it is given."""
    inner = None
    for frame, _ in zip(frames, range(CALLERS)):
        is_one = _is_size_at(frame.f_code.co_filename, frame.f_lineno, what, is_whole, inner, spot_of(frame) if inner is None else None)
        if is_one is not None:
            return is_one
        inner = frame.f_code.co_name
    return False


def is_bare(frames):
    """Whether the number that the innermost of these frames reads is a size as it is: one below 0 would end the program there."""
    frame = next(iter(frames))
    nodes = nodes_of(frame.f_code.co_filename, ast.AST)
    parents = {id(child): n for n in nodes for child in ast.iter_child_nodes(n)}
    held = [n for n in nodes if isinstance(n, ast.stmt) and n.lineno <= frame.f_lineno <= n.end_lineno]
    reads = [n for n in ast.walk(held[-1]) if isinstance(n, ast.Call) and name_of(n) in READING]
    names = {_same(t) for t in _targets(held[-1])}
    uses = [n for n in nodes if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and _same(n) in names]
    return any(_is_size_itself(n, parents) for n in reads + uses)


def _is_size_itself(node, parents):
    parent = parents.get(id(node))
    while isinstance(parent, (ast.Tuple, ast.List, ast.Attribute, ast.keyword)) or name_of(parent) in ("int", "item", "long"):
        parent = parents.get(id(parent))
    return name_of(parent) in SIZES


@functools.lru_cache(maxsize=None)
def _is_size_at(file, line, what, is_whole, inner, spot):
    """None: the function gives it to its caller. `inner`: the function that gave it to this one."""
    held = [n for n in nodes_of(file, ast.stmt) if n.lineno <= line <= (n.end_lineno or n.lineno)]
    if spot:
        held = [n for n in held if (n.lineno, n.col_offset) <= (spot[0], spot[2]) and (spot[1], spot[3]) <= (n.end_lineno, n.end_col_offset)]
    if not held:
        return False
    statement = held[-1]
    there = [n for n in ast.walk(statement) if getattr(n, "lineno", line + 1) <= line <= (getattr(n, "end_lineno", 0) or line)]
    reads = [n for n in there if isinstance(n, ast.Call) and (name_of(n) in READING if inner is None else name_of(n) == inner)]
    if inner is None and any(_is_end(n, spot) for n in there if spot or not reads):
        return True
    if inner is None and not reads:
        return False
    of_kinds = any(name_of(n) in ("set", "Counter") for n in ast.walk(statement))  # how many there are depends on what is read
    functions = [n for n in held if isinstance(n, FUNCTIONS)]
    tree = list(ast.walk(functions[-1])) if functions else nodes_of(file, ast.AST)
    parents = {id(child): n for n in tree for child in ast.iter_child_nodes(n)}
    reads = [n for n in tree if isinstance(n, ast.Call) and any(_is_at(n, r) for r in reads)]  # the same, among their parents
    if any(name_of(n) == "one_hot" and len(n.args) < 2 and not n.keywords or _becomes_size(n, parents, what, is_whole, of_kinds, file) for n in reads):
        return True
    if isinstance(statement, ast.Return):
        return None
    is_whole = is_whole or any(_is_made_whole(n, parents) for n in reads)
    decides = what == NUMBER and not is_whole and bool(reads) and all(_is_compared(n, parents) for n in reads)  # `256 if loss > 1 else 128`: a threshold's
    names, checked, is_given = ({_same(t) for t in _targets(statement)} if not decides else set()) | _turns(reads, parents), set(), False
    while names - checked and len(checked) < MOST_NAMES:
        name = (names - checked).pop()
        checked.add(name)
        for n in tree:
            if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load) and _same(n) == name:
                if _becomes_size(n, parents, what, is_whole, of_kinds, file):
                    return True
                names |= _assigned(n, parents) | _turns([n], parents)
                is_given = is_given or _is_returned(n, parents)
    return None if is_given else False


def _makes_whole(node):
    return name_of(node) in MADE_WHOLE and not (name_of(node) == "round" and len(node.args) == 2)  # to some digits


def _is_choosing(call):
    return name_of(call) in CHOOSING and not (name_of(call) == "where" and len(call.args) > 1)  # one of two numbers for each


def _is_returned(node, parents):
    parent = parents.get(id(node))
    while isinstance(parent, (ast.Tuple, ast.List)):
        parent = parents.get(id(parent))
    return isinstance(parent, ast.Return)


def _is_made_whole(node, parents):
    while node is not None and not isinstance(node, ast.stmt):
        if _makes_whole(node):
            return True
        node = parents.get(id(node))
    return False


def _is_at(a, b):
    return type(a) is type(b) and (a.lineno, a.col_offset, a.end_lineno, a.end_col_offset) == (b.lineno, b.col_offset, b.end_lineno, b.end_col_offset)


def _is_end(node, spot):
    """Whether a tensor itself is an end of this slice, or a size that this call is given: it is then asked for its number. Without a spot: whether it may be."""
    if spot and (getattr(node, "lineno", 0), getattr(node, "end_lineno", 0), node.col_offset, node.end_col_offset) != spot:
        return False
    if isinstance(node, ast.Subscript):
        ends = [end for s in ast.walk(node.slice) if isinstance(s, ast.Slice) for end in (s.lower, s.upper)]
        return any(isinstance(end, (ast.Call, ast.Name, ast.Attribute, ast.BinOp, ast.Subscript)) for end in ends)
    return bool(spot) and isinstance(node, ast.Call) and name_of(node) in SIZES and name_of(node) not in READING_ITSELF


def _levels(compare, child):
    """The numbers that something is held against by its order; none: it is compared with something else, too."""
    others = [x for x in (compare.left, *compare.comparators) if x is not child]
    plain = [x.operand if isinstance(x, ast.UnaryOp) else x for x in others]
    if not all(isinstance(op, ORDERING) for op in compare.ops) or not all(isinstance(x, ast.Constant) and type(x.value) in (int, float) for x in plain):
        return ()
    return [-x.operand.value if isinstance(x, ast.UnaryOp) else x.value for x in others]


def _becomes_size(node, parents, what, is_whole, of_kinds, file=""):
    child, parent, chosen = node, parents.get(id(node)), what == MASK
    while parent is not None and not isinstance(parent, ast.stmt):
        if chosen and (isinstance(parent, ast.Subscript) and child is parent.slice or getattr(parent, "attr", "") in CHOOSING
                       or child is not getattr(parent, "func", child) and _is_choosing(parent)
                       or isinstance(parent, ast.comprehension) and any(child is test for test in parent.ifs)):
            return True
        if isinstance(parent, ast.Subscript) and child is parent.slice and _keeps_more_than_numbers(parents.get(id(parent)), parents):
            return True  # `by_class[c].append(x)`
        if isinstance(parent, ast.Slice) or isinstance(parent, ast.keyword) and parent.arg in SIZE_WORDS:
            return True
        if isinstance(parent, ast.Call) and child is not parent.func:
            name = name_of(parent)
            if name in SIZES:
                return True
            is_whole = is_whole or _makes_whole(parent)
            if name.endswith("Tensor") and isinstance(child, (ast.List, ast.Tuple)):
                return False  # torch.ByteTensor([overflow]) has it as an element
            if name not in PASSED and not (name == "len" and of_kinds or name in ARITHMETIC and _is_made_whole(parent, parents)):
                return is_whole and what == NUMBER and name not in SHOWN
        if isinstance(parent, ast.Compare) and what == BESIDE and (levels := _levels(parent, child)):
            held_against.setdefault(file, set()).update(levels)
            return False
        if isinstance(parent, ast.Compare) and what in (NUMBERS, BESIDE):
            chosen = True
        elif isinstance(parent, (ast.Compare, ast.FormattedValue)):
            return False
        child, parent = parent, parents.get(id(parent))
    return chosen and isinstance(parent, ast.If) and child is parent.test and any(
        isinstance(n, ast.Continue) or name_of(n) in KEEPING for s in parent.body for n in ast.walk(s))


def _is_compared(node, parents):
    """Whether the number is compared in the test of an expression that is one of two."""
    compared = False
    child, parent = node, parents.get(id(node))
    while parent is not None and not isinstance(parent, ast.stmt):
        compared = compared or isinstance(parent, ast.Compare)
        if isinstance(parent, ast.IfExp):
            return compared and child is parent.test
        child, parent = parent, parents.get(id(parent))
    return False


def _keeps_more_than_numbers(method, parents):
    call = parents.get(id(method))
    numbers = ("item", "tolist", "cpu", "numpy", "float", "int")
    return getattr(method, "attr", "") in KEEPING and not all(isinstance(a, ast.Constant) or name_of(a) in numbers for a in getattr(call, "args", ()))


def _turns(nodes, parents):
    """The variables of loops that go through one of these."""
    names = set()
    for node in nodes:
        child, parent = node, parents.get(id(node))
        while isinstance(parent, (ast.Attribute, ast.Call)) and (child is getattr(parent, "func", child) or name_of(parent) in PASSED):
            child, parent = parent, parents.get(id(parent))
        if isinstance(parent, (ast.For, ast.comprehension)) and child is parent.iter:
            names |= {_same(n) for n in ast.walk(parent.target) if isinstance(n, ast.Name)}
    return names


def _assigned(node, parents):
    """The variable to which arithmetic with this one is assigned or added."""
    parent = parents.get(id(node))
    while isinstance(parent, (ast.BinOp, ast.UnaryOp, ast.Call, ast.Attribute)) and name_of(parent) != "len" or isinstance(parent, ast.Subscript) and isinstance(
            parent.slice, ast.Constant):
        parent = parents.get(id(parent))
    targets = _targets(parent)
    return {_same(t) for t in targets}


def _targets(statement):
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target] if isinstance(statement, (ast.AugAssign, ast.AnnAssign)) else []
    return [t for target in targets for t in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])]


def _same(node):
    """Equal for nodes that read or set one variable."""
    if isinstance(node, ast.Name):
        return node.id
    return (_same(node.value), node.attr) if isinstance(node, ast.Attribute) else ast.dump(node)
