"""Where a program puts things in the order of numbers of the card, by its source: it sorts samples by their losses, keeps them in a heap, takes the model with
the least, or keeps the best one so far."""
import ast

from .branches import name_of
from .keeping import base_of

SORTING = "sorted sort heappush heappushpop heapreplace heapify nlargest nsmallest min max".split()
PLACING = "argsort argmin argmax topk sort".split()  # of an array, or of a tensor, that is made of such numbers
MADE = "array asarray tensor as_tensor".split()
DEPTH = 3


class Ordering:
    """`measures`: which expressions are such numbers (improving.py); `is_called_whole`: names of counts and epochs."""

    def __init__(self, measures, is_called_whole):
        self.measures, self.source, self.is_called_whole = measures, measures.source, is_called_whole

    def orders(self, call):
        """Whether it puts things in the order of such numbers: not the numbers alone."""
        name, args = name_of(call), call.args
        of = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        if name in PLACING and (any(self.is_made_of_reads(x) for x in args[:1] + of) or base_of(call) in ("np", "numpy") and any(
                self.measures.is_float(x) for x in args[:1])):
            return True
        if name not in SORTING:
            return False
        if any(self.is_key(k.value) for k in call.keywords if k.arg == "key"):
            return True
        return any(self.holds_pairs(x) for x in args + of * (name == "sort"))

    def is_key(self, key):
        """Whether such a number is what things are sorted by: `lambda s: s.loss`, `scores.get`, a function that reads one."""
        if getattr(key, "id", "") in self.measures.readers:
            return True
        if isinstance(key, ast.Name) and key.id in self.measures.functions:
            return any(self.measures.gives_float(f, DEPTH) for f in self.measures.functions[key.id])
        return self.measures.is_float(key.body if isinstance(key, ast.Lambda) else key.value if isinstance(key, ast.Attribute) else key)

    def is_made_of_reads(self, node, depth=DEPTH):
        if depth < 0:
            return False
        if isinstance(node, (ast.UnaryOp, ast.Subscript)):
            return self.is_made_of_reads(node.operand if isinstance(node, ast.UnaryOp) else node.value, depth)
        if isinstance(node, ast.Call):
            return name_of(node) in MADE and base_of(node) in ("np", "numpy", "torch") and any(self.measures.is_float(x) for x in node.args)
        return isinstance(node, ast.Name) and any(self.is_made_of_reads(value, depth - 1) for _, value in self.source.assigned(node) or ())

    def holds_pairs(self, node, depth=DEPTH):
        """Whether it is such a number with something beside it, or a list of such pairs."""
        if depth < 0:
            return False
        if isinstance(node, ast.Tuple):
            return any(self.measures.is_float(x) for x in node.elts)
        if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
            return self.holds_pairs(node.elt, depth - 1)
        if isinstance(node, ast.Call):
            of = [node.func.value] if name_of(node) == "items" and isinstance(node.func, ast.Attribute) else []
            return name_of(node) in ("zip", "list", "tuple", "enumerate", "items") and any(
                self.measures.is_float(x) or self.holds_pairs(x, depth - 1) for x in node.args + of)
        return isinstance(node, (ast.Name, ast.Attribute)) and any(self.holds_pairs(value, depth - 1) for _, value in self.source.assigned(node) or ())

    def keeps_one(self, statements):
        """Whether a branch gives a name to one of several things: `best, best_x = loss, x`."""
        for s in statements:
            if isinstance(s, ast.Assign):
                values = s.value.elts if isinstance(s.value, ast.Tuple) else [s.value]
                if any(isinstance(v, ast.Name) and not self.is_called_whole(v.id) and not self.measures.is_float(v) and self.is_of_a_loop(v) for v in values):
                    return True
        return False

    def is_of_a_loop(self, name):
        """Whether it is what a loop goes through, but for a count."""
        found = self.source.assigned(name) or ()
        return any(isinstance(at, (ast.For, ast.AsyncFor)) and not isinstance(value, ast.Constant) for at, value in found)
