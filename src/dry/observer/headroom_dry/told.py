"""Whether a program only shows a number that it reads, adds it up or divides by it, as measures of how good a model is, by its source. In doubt it does not."""
import ast
import functools

from .branches import SPEAKING, name_of
from .counts import CALLERS, MOST_NAMES
from .frames import spot_of
from .loops import FUNCTIONS, nodes_of

SHOWING = SPEAKING + """format join write log_metric log_metrics log_dict set_postfix set_postfix_str set_description set_description_str add_scalar
add_scalars""".split()
METERS = "bar progress tqdm meter metric acc top loss avg average score".split()  # whose `update` shows or averages
WHOLE = "int round ceil floor long".split()  # what they give of a quotient may be a size again
PASSING = WHOLE + "float abs max min sum mean average str repr item tolist cpu numpy detach sorted".split()
FINITE = "isnan isinf isfinite".split()
KEEPING = "save state_dict".split()
NUMBER, SHARE = "number", "share"  # a function gives it to its caller; a quotient, which is no size before it is made whole

_known = {}  # by place in the program's code


def is_only_told(frames, is_float=False):
    """Whether the value that the innermost of these frames reads is no size and decides nothing. A float is none before it is made whole."""
    state, inner = SHARE if is_float else NUMBER, None
    for frame, _ in zip(frames, range(CALLERS)):
        code = frame.f_code
        key = code.co_filename, code.co_firstlineno, code.co_name, frame.f_lasti, state, inner
        if key not in _known:
            _known[key] = _told_at(frame, state, inner)
        if isinstance(_known[key], bool):
            return _known[key]
        state, inner = _known[key], code.co_name
    return False


@functools.lru_cache(maxsize=16)
def _source(file):
    """Its nodes, outermost first, and the parent of each."""
    nodes = nodes_of(file, ast.AST)
    return nodes, {id(child): n for n in nodes for child in ast.iter_child_nodes(n)}


def _told_at(frame, state, inner):
    nodes, parents = _source(frame.f_code.co_filename)
    asking = _asking(frame, nodes, inner)
    if inner is None and asking and all(_asks_if_finite(n, parents) for n in asking):
        return True
    if not asking or inner is None and not all(_is_read(n) for n in asking):
        return False
    return _judge([(n, state) for n in asking], nodes, parents)


def _is_read(node):
    if isinstance(node, ast.Subscript):  # it is the place of what is looked up
        return not any(isinstance(n, ast.Slice) for n in ast.walk(node.slice))
    return isinstance(node, (ast.FormattedValue, ast.JoinedStr)) or isinstance(node, ast.Call) and (name_of(node) in PASSING or _shows(node))


def _asking(frame, nodes, inner):
    """The expression that the frame is at. Where only its line is known: each of its calls that may read, or that may be of `inner`."""
    line, spot = frame.f_lineno, spot_of(frame)
    if spot:  # that of a method begins where its name does, if the call has several lines
        ends = [n for n in nodes if isinstance(n, ast.expr) and (n.end_lineno, n.end_col_offset) == (spot[1], spot[3])
                and (n.lineno, n.col_offset) <= (spot[0], spot[2])]
        return [max(ends, key=lambda n: (n.lineno, n.col_offset))] if ends else []
    held = [n for n in nodes if isinstance(n, ast.stmt) and n.lineno <= line <= n.end_lineno]
    there = [n for n in ast.walk(held[-1]) if getattr(n, "lineno", 0) <= line <= getattr(n, "end_lineno", 0)] if held else []
    if any(isinstance(n, ast.Call) for s in there if isinstance(s, ast.Slice) for n in ast.walk(s)):
        return []
    calls = [n for n in there if isinstance(n, ast.Call) and name_of(n) in ([inner] if inner else PASSING)]
    return calls or [s.test for s in held[-1:] if isinstance(s, (ast.If, ast.Assert))]


def _shows(call):
    name, of = name_of(call), getattr(call.func, "value", None)
    owner = (getattr(of, "attr", None) or getattr(of, "id", "")).lower()
    if name == "update":
        return any(word in owner for word in METERS)
    return name in SHOWING and (name != "log" or of is not None and owner not in ("math", "cmath", "np", "numpy", "torch"))


def _asks_if_finite(node, parents):
    """Whether an `if` or an `assert` asks nothing by this but whether numbers are finite."""
    parent = parents.get(id(node))
    while isinstance(parent, (ast.BoolOp, ast.UnaryOp)) or isinstance(parent, ast.Call) and name_of(parent) in ("any", "all", "bool"):
        parent = parents.get(id(parent))
    if not isinstance(parent, (ast.If, ast.Assert)):
        return False
    calls = [name_of(n) for n in ast.walk(node) if isinstance(n, ast.Call)]
    return any(c in FINITE for c in calls) and all(c in FINITE + ["any", "all", "bool", "item"] for c in calls)


def _function_of(node, parents):
    while node is not None and not isinstance(node, FUNCTIONS + (ast.ClassDef,)):
        node = parents.get(id(node))
    return node


def _judge(starts, nodes, parents):
    """Of each of these expressions and of what takes over its value: whether all is told; NUMBER or SHARE: their function returns it."""
    own, given, checked, waiting = _function_of(starts[0][0], parents), True, set(), list(starts)
    while waiting:
        node, state = waiting.pop()
        found = _ends(node, state, parents)
        if found is None:
            return False
        for target, state in found:
            if isinstance(target, ast.Return):
                function = _function_of(target, parents)
                if function is own:
                    given = SHARE if SHARE in (state, given) else NUMBER
                    continue
                target = function
            key = ast.dump(target) if isinstance(target, ast.Subscript) else getattr(target, "name", getattr(target, "attr", getattr(target, "id", "")))
            key = type(target), key, state
            if key in checked:
                continue
            checked.add(key)
            uses = _uses(target, state, nodes, parents)
            if uses is None or len(checked) > MOST_NAMES:
                return False
            waiting += uses
    return given


ON = object()  # nothing has taken the value over yet


def _ends(node, state, parents):
    """What takes over the value of an expression: variables, or a `return`; none: it is only shown. None: it may be a size, or decide something."""
    if isinstance(node, (ast.FormattedValue, ast.JoinedStr)) or isinstance(node, ast.Call) and _shows(node):
        return []
    way = _Way(node, state, parents)
    while not isinstance(way.parent, (ast.stmt, type(None))):
        end = way.through()
        if end is not ON:
            return end
        way.child, way.parent = way.parent, parents.get(id(way.parent))
    return way.taken_over()


class _Way:
    """The way of a value, from its expression through those around it to the statement."""

    def __init__(self, node, state, parents):
        self.child, self.parent, self.parents = node, parents.get(id(node)), parents
        self.state = state
        self.whole = False  # it became a whole number
        self.packed = False  # it is in a tuple, a list or a dictionary
        self.decides = False  # it is compared
        self.key = None  # of the dictionary in which it is

    def through(self):
        """Past one expression. What _ends answers, or ON."""
        child, parent = self.child, self.parent
        if isinstance(parent, (ast.FormattedValue, ast.JoinedStr)):
            return []
        if isinstance(parent, ast.BinOp):
            return self.through_arithmetic()
        if isinstance(parent, ast.Compare) or isinstance(parent, ast.UnaryOp) and isinstance(parent.op, ast.Not):
            self.decides = True
            return ON
        if self.is_named_in_a_dictionary():
            self.key = parent.keys[parent.values.index(child)]
            return ON
        if isinstance(parent, (ast.Tuple, ast.List)) or isinstance(parent, ast.Dict) and child not in parent.keys \
                or isinstance(parent, (ast.GeneratorExp, ast.ListComp)) and child is parent.elt:
            self.packed = True
            return ON
        if isinstance(parent, (ast.Call, ast.Attribute)):
            return self.through_call()
        if isinstance(parent, ast.Subscript) and (child is parent.value or not self.decides):
            return self.through_place()
        passes = isinstance(parent, ast.keyword) or isinstance(parent, ast.UnaryOp) and not isinstance(parent.op, ast.Invert) \
            or isinstance(parent, ast.BoolOp) and self.decides or isinstance(parent, ast.IfExp) and child is not parent.test
        return ON if passes else None

    def through_arithmetic(self):
        child, parent = self.child, self.parent
        other = parent.left if child is parent.right else parent.right
        is_text = isinstance(other, ast.JoinedStr) or isinstance(other, ast.Constant) and isinstance(other.value, str)
        if isinstance(parent.op, ast.Mod) and is_text and other is parent.left:
            return []
        if self.packed or self.decides or not isinstance(parent.op, (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod)) \
                or isinstance(parent.op, ast.Mult) and (is_text or isinstance(other, (ast.List, ast.Tuple, ast.ListComp))):
            return None
        self.state = SHARE if isinstance(parent.op, ast.Div) else self.state
        self.whole = self.whole or isinstance(parent.op, (ast.FloorDiv, ast.Mod))
        return ON

    def is_named_in_a_dictionary(self):
        """Whether it is the value of a name, in a dictionary that a variable takes over."""
        d = self.parent
        return isinstance(d, ast.Dict) and not self.packed and self.child in d.values and isinstance(d.keys[d.values.index(self.child)], ast.Constant) \
            and isinstance(self.parents.get(id(d)), ast.Assign)

    def through_call(self):
        """It is an argument, or the method of it is called."""
        child, parent = self.child, self.parent
        call = self.parents.get(id(parent)) if isinstance(parent, ast.Attribute) else parent
        if not isinstance(call, ast.Call) or isinstance(parent, ast.Attribute) and call.func is not parent or child is call.func:
            return None
        name = name_of(call)
        if call is parent and (_shows(call) or name == "len") or call is not parent and name == "backward":
            return []
        if call is not parent and name == "append":
            return []  # to the list in which it is
        if name == "append" and isinstance(call.func, ast.Attribute) and not (self.whole or self.decides):
            return [(call.func.value, self.state)]
        if name not in PASSING or self.decides:
            return None
        self.whole = self.whole or name in WHOLE and self.state == SHARE and not (name == "round" and len(call.args) == 2)
        self.packed = self.packed and name in ("sorted", "float", "str", "repr")
        self.parent = call
        return ON

    def through_place(self):
        """It is a place in a list, where what is there takes over, or it is taken out of one."""
        if not isinstance(self.parent.ctx, ast.Load):
            return []  # another is put there
        self.packed = False
        if self.child is self.parent.slice:
            self.state, self.whole = NUMBER, False
        return ON

    def taken_over(self):
        """By the statement at the end of the way."""
        child, parent, state = self.child, self.parent, self.state
        if isinstance(parent, ast.If):
            keeps = self.decides and state == SHARE and not self.whole and child is parent.test and _only_keeps(parent)
            return [] if keeps else None
        if self.whole or self.decides or self.packed and not isinstance(parent, ast.Return):
            return None
        if isinstance(parent, ast.Expr):
            return []
        if isinstance(parent, ast.Return):
            return [(parent, state)]
        if isinstance(child, ast.Subscript) and child in (getattr(parent, "target", None), *getattr(parent, "targets", ())):
            return []  # another is put there
        if isinstance(parent, ast.AugAssign) and child is parent.value and isinstance(parent.op, (ast.Add, ast.Sub, ast.Mult)):
            return [(parent.target, state)]
        if isinstance(parent, (ast.Assign, ast.AnnAssign)) and child is parent.value:
            targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target]
            if self.key is not None:
                targets = [ast.Subscript(t, self.key, ast.Load()) if isinstance(t, ast.Name) else t for t in targets]
            return [(t, state) for target in targets for t in (target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target])]
        return None


def _only_keeps(branch):
    """Whether an `if`, as of the best model so far, only sets variables to what is there, saves and shows."""
    inside = [n for s in branch.body + branch.orelse for n in ast.walk(s)]
    return all(name_of(n) in KEEPING or _shows(n) for n in inside if isinstance(n, ast.Call)) and not any(
        isinstance(n, (ast.Return, ast.Break, ast.Continue, ast.For, ast.While, ast.BinOp)) and not _counts(n) for n in inside)


def _counts(node):
    return isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant)


def _uses(target, state, nodes, parents):
    """Each use of a variable in its function, of an attribute in its file, or each call of a function there. None: it may be used elsewhere."""
    if isinstance(target, FUNCTIONS):
        uses = [n for n in nodes if isinstance(n, ast.Call) and name_of(n) == getattr(target, "name", None)]
        return [(n, state) for n in uses] or None
    base = target.value if isinstance(target, ast.Subscript) else target
    if isinstance(base, ast.Attribute):
        same = [n for n in nodes if isinstance(n, ast.Attribute) and n.attr == base.attr and not _is_method(n, parents)]
    elif isinstance(base, ast.Name):
        scope = _function_of(base, parents)
        if isinstance(scope, ast.ClassDef):
            return None
        there = nodes if scope is None else list(ast.walk(scope))
        if any(isinstance(n, (ast.Global, ast.Nonlocal)) and base.id in n.names for n in there):
            return None
        same = [n for n in there if isinstance(n, ast.Name) and n.id == base.id]
        if not any(isinstance(n.ctx, ast.Store) for n in same):  # the caller's, or the file's
            return None
    else:
        return None
    for n in same:
        change = parents.get(id(n))
        if isinstance(change, ast.AugAssign) and change.target is n and isinstance(change.op, (ast.FloorDiv, ast.Mod)):
            return None
        if isinstance(change, ast.AugAssign) and change.target is n and isinstance(change.op, ast.Div):
            state = SHARE
    loads = [n for n in same if isinstance(n.ctx, ast.Load)]
    if base is not target:
        loads = _items(target, loads, parents)
    if loads is None or not loads and isinstance(base, ast.Attribute):
        return None
    return [(n, state) for n in loads]


def _is_method(node, parents):
    parent = parents.get(id(node))
    return isinstance(parent, ast.Call) and parent.func is node


def _items(target, bases, parents):
    """The uses of an item of a list or a dictionary, by the uses of all of it. None: all of it is given away."""
    found = []
    for n in bases:
        parent = parents.get(id(n))
        if isinstance(parent, ast.Subscript) and parent.value is n:
            constant = all(isinstance(i.slice, ast.Constant) for i in (parent, target))
            if isinstance(parent.ctx, ast.Load) and not (constant and parent.slice.value != target.slice.value):
                found.append(parent)
        elif not (isinstance(parent, ast.Call) and parent.func is not n and _shows(parent)):
            return None
    return found
