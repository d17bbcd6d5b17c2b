"""Where a whole number goes, by the program's source: into a size (`length *= 2`, `n += int(loss < 0.5)`), or only into counts, texts and comparisons. And
which places of a source decide something by a comparison: its branches, the conditions of its lists, its assertions, the tests of its loops."""
import ast

from .branches import name_of
from .counts import SIZES
from .keeping import KEEPING, is_harmless
from .loops import FUNCTIONS

DEPTH = 4
PASSED = "int min max sum abs round len ceil floor".split()
LEAVING = ast.Continue, ast.Return


class Effects:
    """`source`: an improving.Source; `functions`: by name, those that the program has."""

    def __init__(self, source, functions):
        self.source, self.functions = source, functions
        self.whole, self.used = {}, None

    def sets_size(self, statements):
        """Whether one of these sets a variable to a whole number of which a size is made somewhere."""
        for s in statements:
            for n in ast.walk(s):
                targets = n.targets if isinstance(n, ast.Assign) else [n.target] if isinstance(n, ast.AugAssign) else []
                if any(isinstance(t, (ast.Name, ast.Attribute)) and (
                        (self.is_whole(t) or self.is_one_of_many(n.value, t)) and self.is_used_as_size(t) or self.is_another(n.value, t)) for t in targets):
                    return True
                if any(isinstance(t, ast.Subscript) and self.is_whole(n.value) and self.is_item_a_size(t) for t in targets):
                    return True
        return False

    def is_one_of_many(self, value, target):
        """Whether what began as a whole number is set to one that a loop goes through: `for limit, n in stages: if loss < limit: length = n`."""
        if not isinstance(value, ast.Name) or not any(of is None or isinstance(of, ast.Starred) for _, of in self.source.assigned(value) or ()):
            return False
        return any(type(getattr(of, "value", None)) is int for _, of in self.source.assigned(target) or ())

    def is_another(self, value, target):
        """Whether a name is given to something that is called by it: which model, or which function, works."""
        return isinstance(value, (ast.Name, ast.Attribute)) and any(getattr(self.source.parents.get(id(n)), "func", None) is n for n in self.uses_of(target))

    def chooses_one(self, node):
        """Whether one of two things is taken that is then called: `net = large if loss > 1 else small`."""
        statement = self.source.parents.get(id(node))
        return any(isinstance(t, (ast.Name, ast.Attribute)) and self.is_another(side, t) for t in getattr(statement, "targets", ()) for side in (node.body, node.orelse))

    def is_item_a_size(self, item):
        """Whether a size is made of an item (`settings["batch"]`) somewhere."""
        same = ast.dump(item.value), ast.dump(item.slice)
        return any(isinstance(n, ast.Subscript) and isinstance(n.ctx, ast.Load) and (ast.dump(n.value), ast.dump(n.slice)) == same and self.becomes_size(n)
                   for n in self.source.nodes)

    def is_whole(self, node, depth=DEPTH):
        """Whether all that a variable, or an expression, may be are whole numbers that the program computes; a caller's may be."""
        if depth < 0:
            return False
        if isinstance(node, (ast.Name, ast.Attribute)):
            key = self.source.variable(node)
            if key not in self.whole:
                self.whole[key] = True  # of itself
                found = self.source.assigned(node)
                self.whole[key] = found is None or all(value is not None and self.is_whole(value, depth - 1) for _, value in found)
            return self.whole[key]
        if isinstance(node, ast.Constant):
            return type(node.value) is int
        if isinstance(node, ast.BinOp):
            return not isinstance(node.op, ast.Div) and self.is_whole(node.left, depth) and self.is_whole(node.right, depth)
        if isinstance(node, ast.Call):
            name = name_of(node)
            return name in ("int", "round", "len", "ceil", "floor") or name in ("min", "max", "abs", "sum") and all(self.is_whole(a, depth) for a in node.args)
        if isinstance(node, ast.IfExp):
            return self.is_whole(node.body, depth) and self.is_whole(node.orelse, depth)
        return isinstance(node, ast.Compare) or isinstance(node, ast.GeneratorExp) and self.is_whole(node.elt, depth)

    def is_used_as_size(self, target, depth=DEPTH):
        return any(self.becomes_size(n, depth - 1) for n in self.uses_of(target))

    def becomes_size(self, node, depth=DEPTH):
        """Whether a whole number goes into a size from here, or tells which of some sizes one is."""
        child, parent = node, self.source.parents.get(id(node))
        while parent is not None and not isinstance(parent, ast.stmt):
            if isinstance(parent, ast.Slice):
                return True
            if isinstance(parent, ast.Subscript) and child is parent.slice:
                return isinstance(parent.ctx, ast.Load) and self.is_table(parent.value)
            if isinstance(parent, (ast.Compare, ast.FormattedValue, ast.Dict, ast.Attribute)) or child is getattr(parent, "test", None) or child in getattr(parent, "ifs", ()):
                return False
            if isinstance(parent, ast.Call) and child is not parent.func and name_of(parent) not in PASSED:
                return name_of(parent) in SIZES or name_of(parent) != "range" and not is_harmless(parent)
            child, parent = parent, self.source.parents.get(id(parent))
        targets = parent.targets if isinstance(parent, ast.Assign) else [parent.target] if isinstance(parent, ast.AugAssign) else []
        return depth > 0 and any(isinstance(t, (ast.Name, ast.Attribute)) and self.is_used_as_size(t, depth - 1) for t in targets)

    def is_chosen_by(self, node):
        """Whether what such a call gives, or the item that it tells, is used for more than to be shown."""
        parents, statement = self.source.parents, node
        while not isinstance(statement, (ast.stmt, type(None))):
            statement = parents.get(id(statement))
        targets = [t for t in getattr(statement, "targets", ()) if isinstance(t, (ast.Name, ast.Attribute))]
        uses = [node] + [n for t in targets for n in self.uses_of(t)]
        return any(self.is_item_used(n, parents) for n in uses)

    def is_item_used(self, node, parents):
        child, parent = node, parents.get(id(node))
        while isinstance(parent, ast.Call) and child is not parent.func and name_of(parent) in PASSED:
            child, parent = parent, parents.get(id(parent))
        if isinstance(parent, ast.Subscript) and child is parent.slice and isinstance(parent.ctx, ast.Load):
            shown = parents.get(id(parent))
            return not isinstance(shown, ast.FormattedValue) and not (isinstance(shown, ast.Call) and is_harmless(shown))
        return isinstance(parent, ast.Attribute) or isinstance(parent, ast.Call) and child is parent.func

    def uses_of(self, target):
        if self.used is None:
            self.used = {}
            for n in self.source.nodes:
                if isinstance(n, (ast.Name, ast.Attribute)) and isinstance(n.ctx, ast.Load):
                    self.used.setdefault(self.source.variable(n), []).append(n)
        return self.used.get(self.source.variable(target), ())

    def is_counted_into_size(self, compare):
        """Whether an answer is taken for 0 or 1 (`n += int(loss < 0.5)`, `sum(v > 1 for v in seen)`), of which a size is made."""
        parent = self.source.parents.get(id(compare))
        adds = isinstance(parent, ast.AugAssign) or isinstance(parent, ast.BinOp) and isinstance(parent.op, (ast.Add, ast.Sub, ast.Mult))
        if isinstance(parent, ast.GeneratorExp):
            parent = self.source.parents.get(id(parent))
        return (adds or name_of(parent) in ("int", "sum")) and self.becomes_size(compare)

    def is_table(self, node):
        """Whether it is a list of whole numbers that the source has."""
        found = self.source.assigned(node) if isinstance(node, (ast.Name, ast.Attribute)) else [(None, node)]
        lists = [value for _, value in found or () if isinstance(value, (ast.List, ast.Tuple))]
        return any(v.elts and all(self.is_whole(e) for e in v.elts) for v in lists)

    def empties(self, statements, is_number):
        """Whether something lets go there of a list that holds more than numbers."""
        for n in (n for s in statements for n in ast.walk(s)):
            if name_of(n) in ("clear", "pop", "popleft") and isinstance(n.func, ast.Attribute):
                base = n.func.value
            elif isinstance(n, ast.Assign) and isinstance(n.value, ast.List) and not n.value.elts:
                base = n.targets[0]
            else:
                continue
            if isinstance(base, (ast.Name, ast.Attribute)) and any(name_of(at) == "append" and not is_number(value) for at, value in self.source.assigned(base) or ()):
                return True
        return False


def collects(statements, is_number):
    """Whether these make a list of more than numbers longer."""
    return any(name_of(n) in KEEPING and not all(is_number(a) for a in n.args) for s in statements for n in ast.walk(s))


def rest_of(branch, source):
    """What comes after a statement in its block."""
    parent = source.parents.get(id(branch))
    for name in ("body", "orelse", "finalbody"):
        block = getattr(parent, name, None)
        if isinstance(block, list) and branch in block:
            return block[block.index(branch) + 1:]
    return []


def branches_of(n, source):
    """(what a place tests, what is done by that) of each branch; None: it is none."""
    if isinstance(n, ast.If):
        rest = rest_of(n, source)
        return n.test, [n.body, n.orelse] + [rest] * any(isinstance(s, LEAVING) for s in n.body) + handlers_of(n, source)
    if isinstance(n, ast.IfExp):
        return n.test, [[n.body], [n.orelse]]
    if isinstance(n, ast.BoolOp) and isinstance(n.op, ast.And):
        return n.values[0], [n.values[1:]]
    if isinstance(n, ast.match_case) and n.guard is not None:
        return n.guard, [n.body]
    if isinstance(n, ast.Assert):
        return n.test, handlers_of(n, source)
    return None


def handlers_of(n, source):
    """What handles the error that a branch, or an assertion, raises."""
    if isinstance(n, ast.Assert):
        raised = {"AssertionError"}
    else:
        raised = {name_of(s.exc) or getattr(s.exc, "id", "") for s in n.body if isinstance(s, ast.Raise)}
    if not raised:
        return []
    raised.add("Exception")
    return [h.body for h in source.handlers if h.type is None or raised & {getattr(x, "attr", getattr(x, "id", "")) for x in ast.walk(h.type)}]


def lists_by(n, source):
    """The tests of a list that is made of what passes them, if more is done with it than to count, add or show."""
    if isinstance(n, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
        parent = source.parents.get(id(n))
        return [] if isinstance(parent, ast.Call) and is_harmless(parent) and name_of(parent) not in ("tuple", "list", "dict", "set") else [
            test for g in n.generators for test in g.ifs]
    return [n.args[0].body] if name_of(n) == "filter" and n.args and isinstance(n.args[0], ast.Lambda) else []
