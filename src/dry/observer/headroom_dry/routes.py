"""Whether a module keeps which of a few numbers is the largest: the expert that a token goes to, the code that is nearest. By its source, in its forward pass:
a word that is chosen next, and an answer that is compared with a label, are asked for elsewhere."""
import ast
import functools

from .branches import name_of
from .loops import nodes_of
from .variables import owner

VALUES = "values"


def is_choice(frames, module, tells_values):
    """Whether the innermost of these frames is at work in the forward pass of a module with parameters; `tells_values`: it is also given the largest number."""
    frame, asker = next(frames), None
    if tells_values and not _takes_indices(frame.f_code.co_filename, frame.f_lineno):
        return False
    while frame is not None:
        if asker is None:
            asker = owner(frame)
            if not isinstance(asker, module):
                asker = None
            elif next(asker.parameters(), None) is None:
                return False  # a measure of how good a model is
        elif frame.f_code.co_name == "_call_impl":
            return True
        frame = frame.f_back
    return False


@functools.lru_cache(maxsize=None)
def _takes_indices(file, line):
    """Whether `max` or `min` at this line gives more to the program than the largest numbers."""
    held = [n for n in nodes_of(file, ast.stmt) if n.lineno <= line <= (n.end_lineno or n.lineno)]
    if not held:
        return False
    parents = {id(child): n for n in ast.walk(held[-1]) for child in ast.iter_child_nodes(n)}
    return any(_keeps_indices(n, parents.get(id(n))) for n in ast.walk(held[-1])
               if name_of(n) in ("max", "min") and n.lineno <= line <= (n.end_lineno or n.lineno))


def _keeps_indices(call, parent):
    if isinstance(parent, ast.Attribute):
        return parent.attr != VALUES
    if isinstance(parent, ast.Subscript):
        return not (isinstance(parent.slice, ast.Constant) and parent.slice.value == 0)
    if isinstance(parent, ast.Assign) and isinstance(parent.targets[0], ast.Tuple):
        last = parent.targets[0].elts[-1]
        return not (isinstance(last, ast.Name) and last.id.startswith("_"))
    return True
