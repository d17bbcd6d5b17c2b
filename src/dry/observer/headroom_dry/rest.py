"""What the program does once enough of its steps were seen: it goes on for a few steps, so that a last evaluation, or what comes after the last step, is
seen where it comes soon. How far it goes follows from the work that it gives the card, not from the time that this takes: the answer is the same beside other
programs. Nothing of it counts as time, and what it saves meanwhile is written nowhere: a forecast has no weights to keep."""
import atexit
import ctypes
import functools
import os
import sys
import threading
import time

from . import library

MOST_STEPS = 10
SHARE, LEAST_WORK, MOST_WORK = 0.25, 3000, 30000  # share of the work that the card was given so far: the step that ends after as much more is the last one
WITHOUT_A_STEP = 2  # so many times as much, where no step ends
BUSY_S, WAITING_S = 5, 30  # of processor time, and of any: a program that gives the card nothing ends then
LOOK_S = 0.1
GRACE_S = 0.5  # for the main thread to end the program by itself

why = None  # enough was seen, and why; None: not yet
_steps = 0
_given, _more = 0, LEAST_WORK  # the work that the card was given by then, and how much more it may be given


def begin(reason, end, alone):
    """`end(why, code, orderly)` ends the program on the thread that calls it. `alone`: it has no other ranks."""
    global why, _given, _more
    why = reason
    _given = _work()
    _more = min(MOST_WORK, max(LEAST_WORK, SHARE * _given))
    library.mark("settled", reason)
    _hear_of_failures(end, alone)
    _save_nothing()
    ends, ends_itself = threading.Event(), _on_main_thread(lambda: end(reason, 0))
    threading.Thread(target=_wait, args=(ends, ends_itself, end), daemon=True).start()
    atexit.register(ends.set)


def is_long():
    """A step ends: whether it is the last one."""
    global _steps
    _steps += 1
    return _steps >= MOST_STEPS or _work() - _given >= _more


def _work():
    return library.work() if library.work is not None else 0


def _wait(ends, ends_itself, end):
    """Until the program has gone on for long enough without a step that ends it."""
    until, busy_until = time.monotonic() + WAITING_S, time.process_time() + BUSY_S
    while not ends.wait(LOOK_S):
        if time.monotonic() > until or time.process_time() > busy_until or _work() - _given >= WITHOUT_A_STEP * _more:
            _over(ends_itself, end)
            return


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
