"""What the program does once enough of its steps were seen: it goes on for a few steps or a short time, so that a last evaluation, or what comes after
the last step, is seen where it comes soon. Nothing of it counts as time, and what it saves meanwhile is written nowhere: a forecast has no weights to keep."""
import atexit
import ctypes
import functools
import os
import sys
import threading
import time

from . import library

MOST_STEPS = 10
SHARE, LEAST_S, MOST_S = 0.05, 0.25, 5  # share of the time that the program has taken so far
GRACE_S = 0.5  # for the main thread to end the program by itself
BEGUN = time.monotonic()

why = None  # enough was seen, and why; None: not yet
_steps = 0


def begin(reason, end, alone):
    """`end(why, code, orderly)` ends the program on the thread that calls it. `alone`: it has no other ranks."""
    global why
    why = reason
    library.mark("settled", reason)
    _hear_of_failures(end, alone)
    _save_nothing()
    ends_itself = _on_main_thread(lambda: end(reason, 0))
    timer = threading.Timer(min(MOST_S, max(LEAST_S, SHARE * (time.monotonic() - BEGUN))), _over, (ends_itself, end))
    timer.daemon = True
    timer.start()
    atexit.register(timer.cancel)


def is_long():
    global _steps
    _steps += 1
    return _steps >= MOST_STEPS


def save(run):
    @functools.wraps(run)
    def save(obj, f, *args, **kwargs):
        return run(obj, os.devnull if why and isinstance(f, (str, os.PathLike)) else f, *args, **kwargs)
    return save


def _save_nothing():
    safetensors = sys.modules.get("safetensors.torch")
    if safetensors is None:
        return
    written = safetensors.save_file
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", None)
        if type(names) is dict:
            for name in [n for n, value in list(names.items()) if value is written]:
                names[name] = lambda *args, **kwargs: None


def _on_main_thread(run):
    """A function that has `run` called there, between two lines of Python."""
    @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
    def call(_):
        run()
        return 0

    return lambda: ctypes.pythonapi.Py_AddPendingCall(call, None)


def _over(ends_itself, end):
    ends_itself()
    time.sleep(GRACE_S)
    end(why, 0, orderly=False)  # nothing, where the main thread does it


def _hear_of_failures(end, alone):
    shown = sys.excepthook

    def excepthook(kind, value, trace):
        """A program that runs out of memory, or is interrupted, ends as ever. Any other failure takes nothing from what was seen."""
        if not issubclass(kind, Exception) or "out of memory" in str(value).lower():
            return shown(kind, value, trace)
        if alone:  # a rank fails whose neighbour has ended
            shown(kind, value, trace)
        library.mark("note", f"after its steps agreed, it failed here ({kind.__name__}: {str(value)[:120]})")
        end(why, 0)
    sys.excepthook = excepthook
