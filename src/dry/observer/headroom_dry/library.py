"""The doors of libheadroom_dry.so, which is loaded into this process (doors.h); None for a process that does not run dry."""
import atexit
import ctypes
import os
import sys
import threading
import time

try:
    _all = ctypes.CDLL(None)
    version = _all.headroom_dry_version()
except (OSError, AttributeError):
    version = 0


def _door(name, result, *arguments):
    try:
        door = getattr(_all, name)
    except AttributeError:
        return None
    door.restype, door.argtypes = result, arguments
    return door


_void, _size, _pointer, _text = None, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_char_p
if version:
    known = _door("headroom_dry_known", ctypes.c_int, _pointer, _size, _pointer)  # 0: not all of it; 1; 2: some of it is a guess; 3: or a word; 4: or a choice
    know = _door("headroom_dry_know", _void, _pointer, _size, _pointer)
    guess = _door("headroom_dry_guess", _void, _pointer, _size, _pointer) or know
    choose = _door("headroom_dry_choose", _void, _pointer, _size, _pointer, ctypes.c_int)
    forget = _door("headroom_dry_forget", _void, _pointer, _size)
    forget_each = _door("headroom_dry_forget_each", _void, _pointer, _pointer, _size, _size, _size)
    answer = _door("headroom_dry_answer", _void, _pointer, _size, ctypes.c_int)
    unanswer = _door("headroom_dry_unanswer", _void)
    unknown = _door("headroom_dry_unknown", _void, _pointer, _size)
    scope = _door("headroom_dry_scope", ctypes.c_uint32, ctypes.c_uint32)
    object = _door("headroom_dry_object", ctypes.c_uint32, _pointer)
    python = _door("headroom_dry_python", _void, _pointer)
    work = _door("headroom_dry_work", ctypes.c_uint64)
    asked = _door("headroom_dry_asked", ctypes.c_uint64)
    skip_draws = _door("headroom_dry_skip_draws", ctypes.c_int, _pointer, _size, ctypes.c_uint64)
    untouched = _door("headroom_dry_untouched", _void, _pointer, _size)
    requests = _door("headroom_dry_requests", _void, ctypes.c_uint32, _pointer, _size, ctypes.c_int)
    _peak = _door("headroom_dry_peak", ctypes.c_int, ctypes.c_int, ctypes.POINTER(ctypes.c_uint64), ctypes.POINTER(ctypes.c_uint64), ctypes.c_int)
    _mark = _door("headroom_dry_mark", _void, _text, _text, ctypes.c_int64)


def mark(what, text="", value=0):
    """A word into the record: "step", "phase", "replaced", "value", "end", "object", "note"."""
    _mark(what.encode(), str(text).encode(errors="replace"), value)


def _peak_of_all():
    """The largest peaks of the cards since this was asked last: allocated, reserved."""
    peak, allocated, reserved = (0, 0), ctypes.c_uint64(), ctypes.c_uint64()
    card = 0
    while _peak(card, ctypes.byref(allocated), ctypes.byref(reserved), 1):
        peak = max(peak[0], allocated.value), max(peak[1], reserved.value)
        card += 1
    return peak


def count_calls():
    """From now on the library counts what Python calls, in every thread that there is (Python 3.12 has that; in this one before)."""
    counts = getattr(_all, "headroom_dry_called", None)
    if counts is None or sys.getprofile() is not None:
        return
    api = ctypes.pythonapi  # keeps Python's lock
    begin = getattr(api, "PyEval_SetProfileAllThreads", None) if sys.version_info >= (3, 12) else api.PyEval_SetProfile
    begin.restype, begin.argtypes = None, (ctypes.c_void_p, ctypes.c_void_p)
    begin(ctypes.cast(counts, ctypes.c_void_p), None)


peak = _peak_of_all if version and _peak else None


_ends = []
exit_now = os._exit
EXIT_PATIENCE_S = 10  # with what is sent, while nothing is computed for it: a lock may be held by the thread that called os._exit
LEAST_AT_WORK = 0.005  # the share of a processor that a thread gets which works beside many others


def at_end(run):
    """Calls `run` once, when the observer ends the program or the program ends by itself, by os._exit too."""
    if not _ends:
        atexit.register(ended)
        os._exit = _send_before_exit(os.getpid())
    _ends.append(run)


def _send_before_exit(process):
    def _exit(status):
        if os.getpid() == process:  # a forked worker has its parent's list
            try:
                threading.Thread(target=_end_once_idle, args=(time.pthread_getcpuclockid(threading.get_ident()), status), daemon=True).start()
            except RuntimeError:  # the interpreter ends already, and Python 3.12 starts no thread then
                pass
            ended()
        exit_now(status)
    return _exit


def _end_once_idle(clock, status):
    """Ends the process, with a word of what was not sent, once the thread of that clock waits for EXIT_PATIENCE_S. On a busy machine it may work much longer."""
    done, now = -1.0, 0.0
    while now - done > LEAST_AT_WORK * EXIT_PATIENCE_S:
        done = time.clock_gettime(clock)
        time.sleep(EXIT_PATIENCE_S)
        now = time.clock_gettime(clock)
    said = threading.Thread(target=mark, args=("open", "what the observer had to send at the program's end waited for a lock: it may need more", 1), daemon=True)
    said.start()  # the record may be what is locked
    said.join(1)
    exit_now(status)


def ended():
    while _ends:
        run = _ends.pop()
        try:
            run()
        except Exception as e:
            mark("open", f"the observer's {getattr(run, '__qualname__', 'end')} failed at the end ({type(e).__name__}: {e}): it may need more", 1)
