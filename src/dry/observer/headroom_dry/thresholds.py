"""What numbers of the card are held against, by the program's source: the thresholds that it says, and the numbers that lie between them; multiples of
earlier numbers, and sums of these and a margin, which only a number that jumps is beyond."""
import ast
import math

from .branches import name_of
from .loops import FUNCTIONS

DEPTH = 3
MARGIN, NEAR = 0.01, 0.06  # a smaller margin, and a factor nearer to 1, is passed by numbers that fall or rise
MARGINS = frozenset("delta tol tolerance eps epsilon".split())  # that are not known are small
EARLIER = frozenset("best last prev previous old lowest highest least".split())
ADDING = "sum mean average len".split()
MOST_BETWEEN = 3  # runs
FACTOR, LARGEST = 16, 1e6  # a number that jumps is so many times the one before it, or twice the program's own factor


class Thresholds:
    """`measures`: which expressions are numbers of the card (improving.py); `given`: the names of the program that is run, as they are at its end."""

    def __init__(self, source, functions, measures, given):
        self.source, self.functions, self.measures, self.given = source, functions, measures, given
        self.levels, self.factor = set(), FACTOR

    def add_levels(self, sides):
        """Numbers of the card are held against these."""
        for side in sides:
            self.levels |= self.numbers(side)

    def is_fixed(self, node):
        """Whether a variable, or an option, is only ever what the program was given."""
        if not isinstance(node, (ast.Name, ast.Attribute)) or self.has_words(node, EARLIER):
            return False
        return all(value is not None and self.numbers(value) for _, value in self.source.assigned(node) or ()) and bool(self.numbers(node))

    def is_jump(self, sides, are_floats):
        """Whether only a number that jumps makes such a comparison true: one with a multiple of another such number, or of a difference."""
        return any(self.is_difference(side) or are_floats and self.is_multiple(side) for side in sides)

    def is_difference(self, node, depth=DEPTH):
        """Whether it is a difference, or a quotient, of two numbers of the card."""
        if depth < 0:
            return False
        if isinstance(node, ast.BinOp):
            sides = node.left, node.right
            two = isinstance(node.op, (ast.Sub, ast.Div)) and all(self.measures.is_float(x) for x in sides)
            return two or any(self.is_difference(x, depth) for x in sides)
        if isinstance(node, ast.UnaryOp):
            return self.is_difference(node.operand, depth)
        if isinstance(node, ast.Call):
            if name_of(node) in ADDING:
                return False
            returned = [n.value for f in self.functions.get(name_of(node), ()) for n in ast.walk(f) if isinstance(n, ast.Return)]
            of = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return any(self.is_difference(x, depth - 1) for x in node.args + returned + of)
        return isinstance(node, (ast.Name, ast.Attribute)) and any(self.is_difference(value, depth - 1) for value in self.values_of(node))

    def is_multiple(self, node, depth=DEPTH):
        """Whether it is a number of the card times a factor, or more or less a margin."""
        if depth < 0:
            return False
        if isinstance(node, (ast.Name, ast.Attribute)):
            return any(self.is_multiple(value, depth - 1) for value in self.values_of(node))
        if isinstance(node, ast.UnaryOp):
            return self.is_multiple(node.operand, depth)
        if not isinstance(node, ast.BinOp) or name_of(node.left) in ADDING:
            return False
        floats = [self.measures.is_float(x) for x in (node.left, node.right)]
        if floats.count(True) == 1:
            other = node.left if floats[1] else node.right
            if isinstance(node.op, (ast.Add, ast.Sub)) and self.is_margin(other):
                return True
            if isinstance(node.op, ast.Mult) and self.is_factor(other) or isinstance(node.op, ast.Div) and floats[0] and depth == DEPTH and self.is_factor(other, False):
                return True
        return any(self.is_multiple(x, depth) for x in (node.left, node.right))

    def is_margin(self, node):
        found = self.numbers(node)
        return any(abs(x) > MARGIN for x in found) if found else not self.has_words(node, MARGINS)

    def is_factor(self, node, in_doubt=True):
        found = {abs(x) for x in self.numbers(node)}
        far = [max(x, 1 / x) for x in found if x and abs(x - 1) > NEAR and 1 / LARGEST < x < LARGEST]
        self.factor = max([self.factor] + [2 * x for x in far])
        return bool(far) if found else in_doubt and not isinstance(node, ast.Call)

    def has_words(self, node, words):
        return any(words & set(getattr(n, "attr", getattr(n, "id", "")).lower().split("_")) for n in ast.walk(node))

    def values_of(self, node):
        """What a variable is set to, where that is not made of itself, as an average is that runs on."""
        same = self.source.variable(node)
        for _, value in self.source.assigned(node) or ():
            inside = [n for n in ast.walk(value) if isinstance(n, (ast.Name, ast.Attribute))] if isinstance(value, ast.expr) else []
            if value is not None and not any(self.source.variable(n) == same for n in inside):
                yield value

    def numbers(self, node, depth=DEPTH):
        """The numbers that an expression may be, as far as the source, or the program at its end, says."""
        if depth < 0 or node is None:
            return set()
        if isinstance(node, ast.Constant):
            return {float(node.value)} if type(node.value) in (int, float) and math.isfinite(node.value) else set()
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return {-x for x in self.numbers(node.operand, depth)}
        if isinstance(node, ast.BinOp):
            left, right = self.numbers(node.left, depth), self.numbers(node.right, depth)
            return {y for a in left for b in right for y in _computed(node.op, a, b)}
        if isinstance(node, ast.Subscript):
            return self.numbers_of_item(node)
        if not isinstance(node, (ast.Name, ast.Attribute)):
            return set()
        found = {x for value in self.values_of(node) for x in self.numbers(value, depth - 1)}
        found |= self.numbers_given(node) | self.defaults(node, depth)
        return found if len(found) < 9 else set()

    def numbers_of_item(self, node):
        """Of a dictionary of settings: `settings["low"]`."""
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if key is None or not isinstance(node.value, (ast.Name, ast.Attribute)):
            return set()
        made = [value for value in self.values_of(node.value) if isinstance(value, ast.Dict)]
        return {x for d in made for k, v in zip(d.keys, d.values) if isinstance(k, ast.Constant) and k.value == key for x in self.numbers(v, 0)}

    def numbers_given(self, node):
        """By the program at its end: a name of its file, or an attribute of what it names. No code of the program runs for that."""
        if isinstance(node, ast.Name):
            value = self.given.get(node.id)
        else:
            try:
                value = vars(self.given[node.value.id]).get(node.attr)
            except (AttributeError, KeyError, TypeError):
                value = None
        return {float(value)} if type(value) in (int, float) and math.isfinite(value) else set()

    def defaults(self, node, depth):
        """Of an argument of a function, or of the command line."""
        if isinstance(node, ast.Attribute):
            option = "--" + node.attr.replace("_", "-"), "--" + node.attr
            calls = [c for c in self.source.calls_of("add_argument") if any(isinstance(a, ast.Constant) and a.value in option for a in c.args)]
            return {x for c in calls for k in c.keywords if k.arg == "default" for x in self.numbers(k.value, depth - 1)}
        function = self.source.scope(node)
        if not isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            return set()
        names = [a.arg for a in function.args.args]
        if node.id not in names:
            return set()
        at = names.index(node.id) - len(names)
        own = function.args.defaults[at] if -at <= len(function.args.defaults) else None
        called = function.name if function.name != "__init__" else getattr(self.source.parents.get(id(function)), "name", "")
        given = [k.value for c in self.source.calls_of(called) for k in c.keywords if k.arg == node.id]
        return {x for value in [own, *given] for x in self.numbers(value, depth - 1)}


def _computed(op, a, b):
    try:
        computed = {ast.Add: lambda: a + b, ast.Sub: lambda: a - b, ast.Mult: lambda: a * b, ast.Div: lambda: a / b, ast.Pow: lambda: a ** b}[type(op)]()
    except (KeyError, ZeroDivisionError, OverflowError):
        return []
    return [computed] if isinstance(computed, float) and math.isfinite(computed) else []  # a power of a negative number may be complex


def between(levels, usual):
    """For each run the numbers that are between two thresholds: each such place once, but for where the usual number is, if there is one."""
    ordered = sorted(levels)
    places = [(a * b) ** 0.5 if a > 0 else (a + b) / 2 for a, b in zip(ordered, ordered[1:]) if usual is None or not a < usual < b]
    return [places[i::MOST_BETWEEN] for i in range(min(len(places), MOST_BETWEEN))]


def level_runs(levels, usual):
    """(way, how it is said, whether it is only made in place of the one before) of each run for numbers that are held against thresholds."""
    most, least = max([*levels, usual or 0]), min(levels, default=0)
    above, below = 2 * most if most >= 100 else 100, 2 * least if least <= -1 else -1
    runs = [(f"above:{above:g}", f"with {above:g} and more for each such number", False), ("likely", "with nearly 1 for each such number", True),
            (f"below:{below:g}", f"with {below:g} and less for each such number", False), ("little", "with 0.000001 and less for each such number", True)]
    for numbers in between(levels, usual):
        shown = " and ".join(f"{n:.3g}" for n in numbers)
        runs.append(("between:" + ",".join(f"{n:.9g}" for n in numbers), f"with {shown} for such numbers, between thresholds", False))
    return runs


def jump_runs(factor):
    say = "with each number {} the one before"
    more, less = f"{factor:g} times", f"1/{factor:g} of"
    return [(f"soars:{factor:g}", say.format(more), False), (f"swells:{factor:g}", say.format(more) + ", below 1", True),
            (f"plunges:{factor:g}", say.format(less), False), (f"dives:{factor:g}", say.format(less) + ", below 1", True)]
