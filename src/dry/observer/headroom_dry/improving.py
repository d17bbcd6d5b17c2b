"""Branches that compare numbers of the card with earlier ones and then keep or allocate something, by the program's source: the best weights so far, a list of
snapshots, a test of its own at each improvement. A dry run reads the same number again and again, so it improves once. What is compared is followed loosely,
by names; what is done (keeping.py) strictly: most loops compare a loss, few keep something then."""
import ast
import functools
import gc
import linecache
import os
import re
import sys

from .branches import asks_a_mask, name_of, works_on_its_mask
from .effects import Effects, branches_of, collects, lists_by
from .frames import is_own
from .keeping import Keeping, base_of, leaves
from .loops import FUNCTIONS, nodes_of
from .ordering import Ordering
from .thresholds import Thresholds

OBSERVER = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ORDERING = ast.Lt, ast.LtE, ast.Gt, ast.GtE
COMPARING = "lt gt le ge less greater less_equal greater_equal isclose allclose".split()
WHOLE = """len int range enumerate size dim ndim numel count index ord round time perf_counter monotonic process_time random randint element_size
memory_allocated max_memory_allocated memory_reserved max_memory_reserved mem_get_info device_count getsize get_rank get_world_size""".split()
WHOLE_WORDS = frozenset("""shape ndim size itemsize rank world epoch epochs step steps iter iters iteration iterations idx index num n count counter every interval
freq len length id ids batch batches frame frames max start end name names path dir""".split())
MEASURES = frozenset("""loss losses acc accuracy metric metrics measure score scores best err error errors ppl perplexity auc f1 bleu rouge reward rewards nll mse mae
rmse norm improvement improved monitor current residual diff delta kl elbo dice iou miou psnr fid objective fitness cost energy lowest least smallest highest
greatest criterion evaluate evaluation validate valid validation val test entropy likelihood distance""".split())
LAST = frozenset("""loss losses acc accuracy score scores err error errors ppl perplexity auc reward rewards nll mse mae rmse norm kl""".split())  # of a name
READING = "item tolist numpy cpu mean sum median std var norm detach get squeeze max min exp sqrt".split()
PASSING = "min max abs float sum mean asarray array sorted list median percentile quantile std var average tensor as_tensor".split()
FLAGS = frozenset("best improved improvement better stop early".split())
DEPTH = 8
EARLIER, LEVEL, JUMP, ORDER = "earlier", "level", "jump", "order"  # what numbers are compared with: multiples of earlier ones, those of others


class Source:
    """One file's, or one class's. `compared`: lines where numbers were compared on the card; `read`: lines that read one that only it knows; None: not known."""

    def __init__(self, nodes, first_line=0, compared=frozenset(), read=None):
        self.nodes, self.first_line, self.compared, self.read = nodes, first_line, compared, read
        self.parents = {id(child): n for n in nodes for child in ast.iter_child_nodes(n)}
        self.functions, self.set_names, self.set_attributes = {}, {}, {}
        self.calls = None  # by name, once they are asked for
        self.handlers = [n for n in nodes if isinstance(n, ast.ExceptHandler)]
        for n in nodes:
            if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions.setdefault(n.name, []).append(n)
            for target, value in _set(n):
                if isinstance(target, ast.Name):
                    self.set_names.setdefault((id(self.scope(target)), target.id), []).append((n, value))
                elif isinstance(target, ast.Attribute):
                    self.set_attributes.setdefault(target.attr, []).append((n, value))

    def scope(self, node):
        node = self.parents.get(id(node))
        while node is not None and not isinstance(node, FUNCTIONS):
            node = self.parents.get(id(node))
        return node

    def calls_of(self, name):
        if self.calls is None:
            self.calls = {}
            for n in self.nodes:
                if isinstance(n, ast.Call):
                    self.calls.setdefault(name_of(n), []).append(n)
        return self.calls.get(name, ())

    def variable(self, node):
        """The same for each use of one variable, or of attributes of one name."""
        if isinstance(node, ast.Attribute):
            return None, node.attr
        scope = self.scope(node)
        while scope is not None and (id(scope), node.id) not in self.set_names:
            scope = self.scope(scope)
        return id(scope), node.id

    def assigned(self, node):
        """What this variable or attribute is set to: (statement, value); None: it is never set, or by a caller."""
        return self.set_attributes.get(node.attr) if isinstance(node, ast.Attribute) else self.set_names.get(self.variable(node))


def _set(n):
    """(target, value) of each variable that a statement sets, or of each list that it makes longer; value None: an item of something."""
    if isinstance(n, ast.Assign):
        items = [(t.value, n.value) for t in n.targets if isinstance(t, ast.Subscript) and not isinstance(t.slice, (ast.Constant, ast.Slice))]  # `seen[i] = loss`
        return items + [pair for t in n.targets for pair in _pairs(t, n.value)]
    if isinstance(n, (ast.AugAssign, ast.AnnAssign, ast.NamedExpr)):
        return _pairs(n.target, n.value)
    if name_of(n) == "append" and isinstance(n.func, ast.Attribute) and n.args:
        return [(n.func.value, n.args[0])]
    if isinstance(n, (ast.For, ast.AsyncFor, ast.comprehension)):
        targets = _each(n.target)
        if name_of(n.iter) == "enumerate":
            return [(t, ast.Constant(0) if i == 0 else ast.Starred(n.iter.args[0])) for i, t in enumerate(targets) if n.iter.args]
        if name_of(n.iter) == "zip" and len(n.iter.args) == len(targets):
            return [(t, ast.Starred(of)) for t, of in zip(targets, n.iter.args)]
        one = ast.Constant(0) if name_of(n.iter) == "range" else ast.Starred(n.iter) if len(targets) == 1 else None
        return [(t, one) for t in targets]
    return []


def _pairs(target, value):
    if isinstance(target, (ast.Tuple, ast.List)):
        values = value.elts if isinstance(value, (ast.Tuple, ast.List)) and len(value.elts) == len(target.elts) else [value] * len(target.elts)
        return list(zip(target.elts, values))
    return [(target, value)] if value is not None else []


def _each(target):
    return [x for t in target.elts for x in _each(t)] if isinstance(target, (ast.Tuple, ast.List)) else [target]


class Measures:
    """Which expressions of a source follow from numbers of the card, and which tests from a comparison of such numbers. `readers`: the functions that were
    being called when such numbers were read."""

    def __init__(self, source, functions, readers=(), given=()):
        self.source, self.functions, self.readers = source, functions, readers
        self.thresholds = Thresholds(source, functions, self, dict(given))
        self.known = {}  # by variable or function, and what is asked of it; False while it is found out

    def once(self, key, find):
        if key not in self.known:
            self.known[key] = False
            self.known[key] = find()
        return self.known[key]

    def is_float(self, node, depth=DEPTH):
        """Whether something says so: that it is read from a tensor, what it is called, or a function that read one when it was called."""
        if depth < 0 or node is None or isinstance(node, ast.Constant):
            return False
        if isinstance(node, (ast.Name, ast.Attribute)):
            of_one = isinstance(node, ast.Attribute) and not _is_called_whole(node.attr) and self.is_float(node.value, depth - 1)
            return self.once(("float", *self.source.variable(node)), lambda: self.is_float_variable(node, depth)) or of_one
        if isinstance(node, ast.Subscript):
            key = node.slice.value if isinstance(node.slice, ast.Constant) else ""
            return bool(isinstance(key, str) and _words(key) & MEASURES) or self.is_float(node.value, depth)
        if isinstance(node, ast.BinOp):
            sides = node.left, node.right
            return not (isinstance(node.op, (ast.Mod, ast.FloorDiv)) or any(_is_whole(x) for x in sides)) and any(self.is_float(x, depth) for x in sides)
        if isinstance(node, ast.Call):
            name = name_of(node)
            if _is_whole(node):
                return False
            if name in ("item", "tolist", "numpy", "cpu") or name in self.readers or _words(name) & MEASURES:
                return True
            if name in self.functions and self.once(("gives", None, name), lambda: any(self.gives_float(f, depth - 1) for f in self.functions[name])):
                return True
            of = [node.func.value] if isinstance(node.func, ast.Attribute) and name in READING else []
            passed = node.args if name in PASSING else []
            return any(self.is_float(x, depth - 1) for x in of + passed)
        if isinstance(node, ast.NamedExpr):
            return self.is_float(node.value, depth)
        if isinstance(node, (ast.UnaryOp, ast.Starred, ast.Await, ast.IfExp, ast.Tuple, ast.List, ast.BoolOp)):
            return any(self.is_float(child, depth) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
        return isinstance(node, (ast.ListComp, ast.GeneratorExp)) and self.is_float(node.elt, depth - 1)

    def gives_float(self, function, depth):
        return any(self.is_float(n.value, depth) for n, _ in _returns_of(function))

    def is_float_variable(self, node, depth):
        name = node.id if isinstance(node, ast.Name) else node.attr
        words, found = _words(name), self.source.assigned(node) or ()
        if _is_called_whole(name) and not any(isinstance(value, ast.Starred) for _, value in found):  # (the turns of a loop have short names)
            return False
        if words & MEASURES and not (found and all(type(getattr(value, "value", None)) is str for _, value in found)):
            return True
        return any(self.is_float(value, depth - 1) for _, value in found) or not found and isinstance(node, ast.Name) and self.is_given_float(node, depth)

    def is_given_float(self, node, depth):
        """Whether a call in this file gives such a number for an argument of a function."""
        function = self.source.scope(node)
        names = [a.arg for a in function.args.args] if isinstance(function, ast.FunctionDef) else []
        if node.id not in names:
            return False
        place = names.index(node.id) - (names[0] in ("self", "cls"))
        for call in self.calls_to(function):
            given = [k.value for k in call.keywords if k.arg == node.id] + call.args[place:place + 1] * (place >= 0)
            if any(self.is_float(x, depth - 1) for x in given):
                return True
        return False

    def calls_to(self, function):
        if function.name != "__call__":
            return self.source.calls_of(function.name)
        return self.once(("calls", None, id(function)), lambda: [n for n in self.source.nodes if isinstance(n, ast.Call) and function in self.bodies_of(n)]) or ()

    def decides(self, test, depth=DEPTH):
        """Whether a test, or a value that is kept for one, follows from a comparison of numbers of the card."""
        if depth < 0 or test is None:
            return False
        if isinstance(test, ast.Compare):
            sides = [test.left, *test.comparators]
            if any(isinstance(op, ORDERING) for op in test.ops):
                if self.is_compared_on_card(test):
                    return True
                if self.reads_what_is_known(test):
                    return False
                if any(self.is_float(x) for x in sides) and not any(_is_whole(x) for x in sides):
                    return True
                return any(self.decides(x, depth - 1) for x in sides if isinstance(x, (ast.Name, ast.Attribute)))
            if any(isinstance(op, (ast.Is, ast.IsNot, ast.In, ast.NotIn)) for op in test.ops):
                return False
            return any(self.decides(x, depth - 1) or name_of(x) in ("min", "max") and self.is_float(x) for x in sides)
        if isinstance(test, ast.Call):
            name = name_of(test)
            if name in COMPARING or name in ("any", "all") and self.is_mask(test.func.value if isinstance(test.func, ast.Attribute) and base_of(test) != "torch" else
                                                                           test.args[0] if test.args else None):
                return True
            bodies = self.bodies_of(test)
            if bodies:
                return self.once(("better", None, name), lambda: any(self.decides_in(f, depth - 1) for f in bodies))
            found = self.source.assigned(test.func) if isinstance(test.func, (ast.Attribute, ast.Name)) else None
            compares = [n for _, value in found or () if value is not None for n in ast.walk(value)]
            return any(getattr(n, "attr", "") in COMPARING or isinstance(n, ORDERING) for n in compares) or name in ("bool", "any", "all", "item") and \
                any(self.decides(child, depth - 1) for child in ast.walk(test) if child is not test and isinstance(child, (ast.Call, ast.Compare, ast.Name)))
        if isinstance(test, (ast.Name, ast.Attribute)):
            return self.once(("flag", *self.source.variable(test)), lambda: self.is_flag(test, depth))
        if isinstance(test, (ast.BoolOp, ast.UnaryOp, ast.NamedExpr, ast.IfExp, ast.BinOp)):
            return any(self.decides(child, depth) for child in ast.iter_child_nodes(test) if isinstance(child, ast.expr))
        return False

    def chooses(self, call):
        """Whether it says which of several has the least, or the most, of such numbers."""
        name, args = name_of(call), call.args
        if name == "index":
            return bool(args) and name_of(args[0]) in ("min", "max") and self.is_float(args[0])
        if name in ("argmin", "argmax"):
            return bool(args) and base_of(call) in ("np", "numpy") and self.is_float(args[0])
        keys = [k.value for k in call.keywords if k.arg == "key"] if name in ("min", "max") else []
        return any(isinstance(key, ast.Lambda) and self.is_float(key.body) for key in keys)

    def reads_what_is_known(self, node):
        """Whether a comparison reads a number itself, which was known each time."""
        reads = any(name_of(n) == "item" for n in ast.walk(node))
        return reads and self.source.read is not None and self.source.read.isdisjoint(range(node.lineno, node.end_lineno + 1))

    def is_compared_on_card(self, node):
        return not self.source.compared.isdisjoint(range(node.lineno, node.end_lineno + 1))

    def is_mask(self, node, depth=2):
        """Whether it is a comparison of tensors by their order."""
        if isinstance(node, ast.Compare):
            return any(isinstance(op, ORDERING) for op in node.ops) and not any(_is_whole(x) for x in [node.left, *node.comparators])
        if isinstance(node, (ast.BinOp, ast.UnaryOp)):
            return any(self.is_mask(child, depth) for child in ast.iter_child_nodes(node))
        return isinstance(node, ast.Name) and depth > 0 and any(self.is_mask(value, depth - 1) for _, value in self.source.assigned(node) or ())

    def kinds(self, test):
        """What the numbers that decide a test are compared with, as far as it is seen; else with earlier ones."""
        found = set()
        for n in self.compares_of(test, 3):
            sides = [n.left, *n.comparators]
            if any(isinstance(op, ORDERING) for op in n.ops) and not any(_is_whole(x) for x in sides):
                floats = [self.is_float(x) and not self.thresholds.is_fixed(x) for x in sides]
                on_card = self.is_compared_on_card(n)
                if not any(floats) and not on_card and (not self.is_mask(n) or all(self.thresholds.numbers(x) for x in sides)):
                    continue
                if self.thresholds.is_jump(sides, all(floats) or on_card and not any(isinstance(x, ast.Constant) for x in sides)):
                    found.add(JUMP)
                elif all(floats) or on_card and not any(isinstance(x, ast.Constant) for x in sides):
                    found.add(EARLIER)
                if not all(floats) and JUMP not in found:
                    found.add(LEVEL)
                    self.thresholds.add_levels(side for side, is_float in zip(sides, floats) if not is_float)
        return found or {EARLIER}

    def compares_of(self, test, depth):
        """The comparisons that a test, or what it is set to, or the functions that it calls, have."""
        for n in ast.walk(test) if depth else ():
            if isinstance(n, ast.Compare):
                yield n
            elif isinstance(n, (ast.Name, ast.Attribute)):
                for at, value in self.source.assigned(n) or ():
                    for branch in self.branches_around(at):  # a flag, or a count, that is set there
                        yield from self.compares_of(branch.test, depth - 1)
                    if value is not None and isinstance(value, (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Call)):
                        yield from self.compares_of(value, depth - 1)
            elif isinstance(n, ast.Call):
                for function in self.bodies_of(n):
                    yield from _compares_in(function)

    def bodies_of(self, call):
        """The functions that a call may run: those of its name, or of objects that are called."""
        found = self.functions.get(name_of(call), ())
        made = () if found or not isinstance(call.func, (ast.Name, ast.Attribute)) else self.source.assigned(call.func) or ()
        return self.functions.get("__call__", ()) if any(name_of(value)[:1].isupper() for _, value in made) else found

    def is_flag(self, node, depth):
        found = self.source.assigned(node)
        if found is None:
            name = node.id if isinstance(node, ast.Name) else node.attr
            return bool(_words(name) & FLAGS) and not _is_called_whole(name)
        return any(self.decides(value, depth - 1) or self.is_under(n, depth - 1) for n, value in found)

    def is_under(self, node, depth):
        """Whether a statement is in a branch that such a comparison decides."""
        return any(self.decides(branch.test, depth) for branch in self.branches_around(node))

    def branches_around(self, node):
        child, parent = node, self.source.parents.get(id(node))
        while parent is not None and not isinstance(parent, FUNCTIONS):
            if isinstance(parent, ast.If) and child is not parent.test:
                yield parent
            child, parent = parent, self.source.parents.get(id(parent))

    def decides_in(self, function, depth):
        """Whether a function gives its caller the result of a comparison."""
        for n, compares in _returns_of(function):
            if any(self.decides(c, depth) for c in compares):
                return True
            if isinstance(n.value, (ast.Name, ast.Attribute)) and self.decides(n.value, depth) or self.is_under(n, depth):
                return True
        return False

    def is_number(self, node, depth=DEPTH):
        """A number, a word, or what was compared: nothing that has memory of the card."""
        if isinstance(node, ast.Name):
            found = self.source.assigned(node)
            return self.once(("number", *self.source.variable(node)), lambda: bool(found and depth) and all(
                value is not None and self.is_number(value, depth - 1) for _, value in found))
        if isinstance(node, ast.Call):
            return name_of(node) in ("item", "float", "int", "len", "str", "round", "time", "perf_counter", "dict", "format")
        if isinstance(node, ast.Dict):
            return all(self.is_number(v, depth) for v in node.values)
        return isinstance(node, (ast.Constant, ast.JoinedStr)) or isinstance(node, (ast.BinOp, ast.Tuple, ast.List, ast.UnaryOp)) and all(
            self.is_number(child, depth) for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


@functools.lru_cache(maxsize=None)
def _compares_in(node):
    return [n for n in ast.walk(node) if isinstance(n, ast.Compare)]


@functools.lru_cache(maxsize=None)
def _returns_of(function):
    """What a function returns, each with the comparisons in it. They are looked for once: each file of a program asks this of the functions of all of them."""
    return [(n, _compares_in(n.value)) for n in ast.walk(function) if isinstance(n, ast.Return) and n.value is not None]


def _words_in_order(name):
    return re.split(r"[\W\d_]+", re.sub(r"([a-z])([A-Z])", r"\1_\2", name).lower())


def _words(name):
    return set(_words_in_order(name))


def _is_called_whole(name):
    """Whether it is named as a whole number is: `best_epoch`, not `epoch_loss`."""
    words = _words_in_order(name)
    return not WHOLE_WORDS.isdisjoint(words) and words[-1] not in LAST


def _is_whole(node):
    if isinstance(node, ast.BinOp):
        return _is_whole(node.left) or _is_whole(node.right)
    if isinstance(node, ast.Subscript):
        node = node.value
    name = name_of(node) or getattr(node, "attr", "")
    return name in WHOLE or isinstance(node, ast.Attribute) and _is_called_whole(name) or base_of(node) in ("random", "time", "os")


class Found:
    """By what is compared, the line of the first branch that keeps more, and the thresholds and the largest factor of all of them."""

    def __init__(self):
        self.lines, self.levels, self.factor = {}, set(), 0

    def add(self, kinds, line, thresholds):
        for kind in kinds:
            self.lines.setdefault(kind, line)
        self.levels |= thresholds.levels
        self.factor = max(self.factor, thresholds.factor)

    def take_in(self, other, file):
        for kind, line in other.lines.items():
            self.lines.setdefault(kind, f"{file}:{line}")
        self.levels |= other.levels
        self.factor = max(self.factor, other.factor)


def first_lines(source, functions, sure, ended_itself, readers=(), given=()):
    """What branches compare that keep or allocate more: EARLIER, numbers with earlier ones; LEVEL, with a threshold; JUMP, with a multiple of an earlier one;
    ORDER, of several things with one another."""
    measures = Measures(source, functions, readers, given)
    ordering = Ordering(measures, _is_called_whole)
    keeping, effects, found = Keeping(functions, measures.is_number, sure), Effects(source, functions), Found()
    add = lambda test, line: found.add(measures.kinds(test), line + source.first_line, measures.thresholds)
    for n in source.nodes:
        for test in () if sure else lists_by(n, source):
            if measures.decides(test):
                add(test, n.lineno)
        if not sure and isinstance(n, ast.Call) and ordering.orders(n):
            found.add([ORDER], n.lineno + source.first_line, measures.thresholds)
        if not sure and _decides_by_itself(n, measures, effects, keeping):
            add(getattr(n, "test", n), n.lineno)
        test, branches = branches_of(n, source) or (None, [])
        if test is None or isinstance(n, ast.If) and works_on_its_mask(n) or not measures.decides(test):
            continue
        if not sure and any(ordering.keeps_one(b) for b in branches):
            found.add([ORDER], getattr(n, "lineno", test.lineno) + source.first_line, measures.thresholds)
        does = any(keeping.keeps(b) or not sure and (effects.sets_size(b) or effects.empties(b, measures.is_number)) for b in branches)
        if does or ended_itself and isinstance(n, ast.If) and leaves(n.body) and not asks_a_mask(n):
            add(test, getattr(n, "lineno", test.lineno))
    return found


def _decides_by_itself(n, measures, effects, keeping):
    """Whether a comparison makes a size, or says how often a loop makes a list longer, or a number tells one item of a dictionary from the others."""
    if isinstance(n, ast.Compare):
        parent = measures.source.parents.get(id(n))
        looks_up = isinstance(parent, ast.Subscript) and parent.slice is n and isinstance(parent.value, (ast.Dict, ast.Tuple, ast.List))  # `(small, large)[loss > 1]`
        return any(isinstance(op, ORDERING) for op in n.ops) and (looks_up or effects.is_counted_into_size(n)) and measures.decides(n)
    if isinstance(n, ast.IfExp):
        return (effects.is_whole(n) and effects.becomes_size(n) or effects.chooses_one(n)) and measures.decides(n.test)
    if isinstance(n, ast.Call):
        return measures.chooses(n) and effects.is_chosen_by(n)
    if isinstance(n, ast.While):
        return measures.decides(n.test) and collects(n.body, measures.is_number)
    if isinstance(n, ast.Assign) and isinstance(n.targets[0], ast.Subscript):
        return measures.is_float(n.targets[0].slice) and keeping.keeps([n.value])
    return False


def own_files(program):
    files = {program} | {getattr(m, "__file__", None) for m in list(sys.modules.values())}
    return sorted(f for f in files if isinstance(f, str) and os.path.isfile(f) and is_own(f) and not f.startswith(OBSERVER) and f.endswith(".py"))


def kept_by(program, ended_itself, readers, files, compared=(), read=None):
    """By what is compared (first_lines), "file:line" of a branch by which the program, or a package that it uses, keeps or allocates more. `program`: the
    file that was started, which Python forgets before the end. `files`: those in which such numbers were read. `compared`: (file, line) where that happened on
    the card; `read`: where it reads what only the card knows."""
    lines_of = lambda places, file: {line for at, line in places if at == file}
    sources = {file: Source(nodes_of(file, ast.AST), 0, lines_of(compared, file), None if read is None else lines_of(read, file)) for file in own_files(program)}
    functions, found = {}, Found()
    for source in sources.values():
        for name, of_name in source.functions.items():
            functions.setdefault(name, []).extend(of_name)
    for file, source in sources.items():
        given = vars(sys.modules["__main__"]) if file == program else {}
        found.take_in(first_lines(source, functions, False, ended_itself, readers, given), file)
    of_packages = [(file, None) for file in files if _is_of_a_package(file)]
    for file, name in () if found.lines else sorted(of_packages) + sorted(_classes_of_packages()):
        source = _source_of(file, name)
        if source:
            found.take_in(first_lines(source, source.functions, True, False, readers), file)
        if found.lines:
            break
    return found


def _is_of_a_package(file):
    return isinstance(file, str) and file.endswith(".py") and ("site-packages" in file or "dist-packages" in file) and "/torch/" not in file


def _classes_of_packages():
    """Of which the program has an object."""
    found = set()
    for kind in {c for k in {type(o) for o in gc.get_objects()} for c in k.__mro__}:
        file = getattr(sys.modules.get(kind.__module__), "__file__", None)
        if _is_of_a_package(file):
            found.add((file, kind.__name__))
    return found


@functools.lru_cache(maxsize=None)
def _copies(file):
    """Quickly asked of hundreds of files."""
    try:
        with open(file, "rb") as f:
            text = f.read()
    except OSError:
        return False
    return b"deepcopy" in text or b".clone()" in text


def _source_of(file, name=None):
    """Of a file, or of one of its classes, that copies something; None: it does not."""
    lines = linecache.getlines(file) if _copies(file) else []
    begin = next((i for i, line in enumerate(lines) if name is None or line.startswith((f"class {name}(", f"class {name}:"))), None)
    if begin is None:
        return None
    end = len(lines) if name is None else next((i for i in range(begin + 1, len(lines)) if lines[i][:1].isalpha() or lines[i][:1] == "@"), len(lines))
    text = "".join(lines[begin:end])
    if "deepcopy" not in text and ".clone()" not in text or "if " not in text:
        return None
    try:
        return Source(list(ast.walk(ast.parse(text))), begin)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
