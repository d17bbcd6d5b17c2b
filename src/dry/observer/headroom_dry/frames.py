"""Whose line it is: the frames of the program's own files, among those of PyTorch, of installed packages and of this observer."""
import functools
import itertools
import opcode
import sys

from . import loops

JUMPS_ARE_PLACED = sys.version_info >= (3, 12)


def loop_frame(frame):
    """The frame, from this one outwards in the program's own files, that is in a loop now; None: none is."""
    while frame is not None:
        file = frame.f_code.co_filename
        if is_own(file) and loops.kind_of(file, frame.f_lineno):
            return frame
        frame = frame.f_back
    return None


@functools.lru_cache(maxsize=None)
def is_own(file):
    return not (file.startswith("<") or "headroom_dry" in file or "site-packages" in file or "dist-packages" in file or "/lib/python3" in file)


def asking_frames(frame):
    """The frames outside of PyTorch and this observer, those of installed packages among them, from the innermost outwards."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and "headroom_dry" not in file and "/torch/" not in file:
            yield frame
        frame = frame.f_back


def by_source(judge, in_doubt, *more):
    """What the program's source says of a read; where that cannot be followed, what is the case in doubt. No error of that is the program's."""
    try:
        return judge(asking_frames(sys._getframe()), *more)
    except Exception:
        return in_doubt


def own_frame(frame, anywhere=False):
    """The innermost frame that is the program's own, not of an installed package; else, or `anywhere`, the innermost outside PyTorch."""
    outside = None
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith("<") and "headroom_dry" not in file:
            if is_own(file):
                return outside if anywhere and outside is not None else frame
            if outside is None and "/torch/" not in file:
                outside = frame
        frame = frame.f_back
    return outside


def is_shown(frame):
    """Whether PyTorch writes a tensor as text here: it reads and compares as many numbers as the text has, and waits for none."""
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith("/torch/_tensor_str.py"):
            return True
        if not file.startswith("<") and "headroom_dry" not in file and "/torch/" not in file:
            return False
        frame = frame.f_back
    return False


def spot_of(frame):
    """Where in its file the frame's expression is: its lines and its columns, first and last. None before Python 3.11, and for the branches of 3.11: it has
    them at the place of their statement, or of what was compared before them."""
    code = frame.f_code
    if not hasattr(code, "co_positions") or not JUMPS_ARE_PLACED and "JUMP" in opcode.opname[code.co_code[frame.f_lasti]]:
        return None
    spot = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), None)
    return spot if spot and None not in spot else None
