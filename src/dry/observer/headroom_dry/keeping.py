"""What a branch does about memory of the card, by its source: it keeps a copy, makes a list longer, computes something; or it only counts, shows and saves."""
import ast

from .branches import SPEAKING, name_of
from .loops import FUNCTIONS

COPIES = "deepcopy clone copy".split()
KEEPING = "append extend insert add appendleft push heappush setdefault put".split()
ON_HOST = "cpu numpy tolist item float int".split()
# Functions, and modules whose functions, take nothing of the card that lasts or that the same line did not take in its first turn.
HARMLESS = SPEAKING + ON_HOST + """abs all any as_posix bool ceil clear close detach dict dump dumps enumerate eval exists exp filter
finish flush floor format get getattr getcwd hasattr id int is_main_process isfinite isinf isinstance isnan items join keys len len list log10 log2 log1p
makedirs max mean median min mkdir open named_parameters next numel parameters pop popleft range release remove render replace report reset
reversed round set set_description set_postfix size sorted split sqrt state_dict step str strftime strip sum time train tuple type unlink update upper values
wait_for_everyone writerow zero_grad zip add_scalar add_scalars add_text item write_text""".split()
HARMLESS_MODULES = "csv json logger logging math mlflow np numpy os pathlib pickle shutil statistics sys time tqdm wandb warnings writer".split()
HARMLESS_BEGINNINGS = "save _save log _log print _print write _write dump _dump record plot report notify check_finite".split()
LEAVING = "exit _exit quit".split()


def base_of(call):
    """The first name of what is called: `np` of `np.linalg.norm(x)`; empty: it has none."""
    at = getattr(call, "func", None)
    while isinstance(at, (ast.Attribute, ast.Subscript)):
        at = at.value
    return getattr(at, "id", "")


def is_harmless(call):
    name = name_of(call)
    if name == "load_state_dict":  # a module copies into its own weights; an optimizer's state is made anew
        return not call.keywords and isinstance(call.func, ast.Attribute) and "opt" not in ast.dump(call.func.value).lower()
    return name in HARMLESS or base_of(call) in HARMLESS_MODULES and isinstance(call.func, ast.Attribute) or name.startswith(tuple(HARMLESS_BEGINNINGS)) \
        or name.endswith("_") and not name.endswith("__") or name[:1].isupper() and (name.endswith(("Error", "Exception")) or name == "Path")


class Keeping:
    """`functions`: by name, the source of those that may be called; `is_number(node)`: it is a plain number. `sure`: only what is seen to copy counts;
    else a function that is not known may, too."""

    def __init__(self, functions, is_number, sure=False):
        self.functions, self.is_number, self.sure = functions, is_number, sure
        self.known = {}  # by name of a function

    def keeps(self, statements):
        return any(self._keeps(s) for s in statements)

    def _keeps(self, node):
        if isinstance(node, FUNCTIONS + (ast.ClassDef,)):
            return False
        if isinstance(node, ast.Call):
            name = name_of(node)
            if name == "requires_grad_":
                return True
            if name in COPIES:
                if name == "deepcopy" and not _is_on_host(node) or node.args and name == "copy" and base_of(node) != "copy" or not node.args and not _is_on_host(node.func):
                    return True
            elif name in self.functions and (isinstance(node.func, ast.Name) or name.startswith(tuple(HARMLESS_BEGINNINGS)) or not is_harmless(node)):
                if name not in self.known:
                    self.known[name] = False
                    self.known[name] = any(self.keeps(f.body) for f in self.functions[name])
                if self.known[name]:
                    return True
            elif name.startswith(tuple(HARMLESS_BEGINNINGS)):
                return False  # what is saved goes to a file
            elif name in KEEPING:
                if not all(self.is_number(a) for a in node.args) and not (self.sure and not any(self._keeps(a) for a in node.args)):
                    return True
            elif not self.sure and not is_harmless(node):
                return True
        elif isinstance(node, ast.Assign) and any(getattr(t, "attr", "") == "requires_grad" for t in node.targets):
            return True
        elif isinstance(node, ast.BinOp) and not self.sure and any(getattr(x, "attr", "") in ("grad", "data") for x in (node.left, node.right)):
            return True
        return any(self._keeps(child) for child in ast.iter_child_nodes(node))


def leaves(statements):
    """Whether the loop, the function or the program ends there, for good. An error is no such end, but one that stops the training is."""
    nodes = [n for s in statements for n in ast.walk(s)]
    return any(isinstance(n, (ast.Break, ast.Return)) or name_of(n) in LEAVING or isinstance(n, ast.Raise) and _stops(n.exc) for n in nodes)


def _stops(raised):
    name = name_of(raised) or getattr(raised, "attr", "") or getattr(raised, "id", "")
    return any(word in name for word in ("Stop", "Exit", "Pruned"))


def _is_on_host(node):
    """Whether what is copied was brought to the host before."""
    return any(name_of(n) in ON_HOST for n in ast.walk(node) if isinstance(n, ast.Call))
