"""Comparisons that a program asserts (`assert t0 + dt > t0`): they hold, as on a card where it goes on. A number of the card that nobody knows would end it."""
import ast
import functools

from .frames import is_own
from .loops import nodes_of


def holds(frames, runs_with_other_numbers):
    """Whether the statement that asks asserts comparisons, all of them. In runs with other numbers one in the program's own files may fail."""
    frame = next(frames)
    file, line = frame.f_code.co_filename, frame.f_lineno
    if runs_with_other_numbers and is_own(file):
        return False
    return _asserts_comparisons(file, line)


@functools.lru_cache(maxsize=None)
def _asserts_comparisons(file, line):
    held = [n for n in nodes_of(file, ast.stmt) if n.lineno <= line <= n.end_lineno]
    return bool(held) and isinstance(held[-1], ast.Assert) and _all_compared(held[-1].test)


def _all_compared(test):
    """Whether a test is a comparison, or several of which each must hold."""
    if isinstance(test, ast.BoolOp):
        return isinstance(test.op, ast.And) and all(map(_all_compared, test.values))
    if isinstance(test, ast.BinOp):
        return isinstance(test.op, ast.BitAnd) and _all_compared(test.left) and _all_compared(test.right)
    return isinstance(test, ast.Compare)
