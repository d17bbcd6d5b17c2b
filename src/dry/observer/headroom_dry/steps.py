"""Optimizer steps, phases, and the program's end: after HEADROOM_DRY_STEPS steps, or (0) once the peaks of two steps agree.

A step is counted when the program's first optimizer has stepped and a backward pass has run since it did so before: optimizers that update piece by
piece (ZeRO's groups, an optimizer a parameter) step once, two optimizers of one program are one step."""
import atexit
import os
import signal
import sys
import threading

from . import library

LIMIT = int(os.environ.get("HEADROOM_DRY_STEPS", "0") or 0)
AT_MOST = 20  # steps, where peaks go on to differ
values = None  # of values.Values, where values are observed

_phases = []  # the open ones, innermost last; of the whole process
_count = 0
_backward_since = True
_first = None  # id of the first optimizer that stepped
_peaks = []
_ending = False


def begin(torch):
    from torch.optim import optimizer
    optimizer.register_optimizer_step_pre_hook(_before_step)
    optimizer.register_optimizer_step_post_hook(_after_step)
    for where in (torch.autograd.graph, torch.autograd):
        run = getattr(where, "_engine_run_backward", None)
        if run is not None:
            where._engine_run_backward = _backward(run)
    for name, phase in (("save", "saving"), ("load", "loading")):
        setattr(torch, name, _in_phase(phase, getattr(torch, name)))


def _open(phase):
    _phases.append(phase)
    library.mark("phase", phase)


def _close():
    if _phases:
        _phases.pop()
    library.mark("phase", _phases[-1] if _phases else "")


def _in_phase(phase, run):
    import functools

    @functools.wraps(run)
    def inside(*args, **kwargs):
        _open(phase)
        try:
            return run(*args, **kwargs)
        finally:
            _close()
    return inside


def _backward(run):
    if getattr(run, "headroom_dry", False):
        return run

    def _engine_run_backward(*args, **kwargs):
        global _backward_since
        _backward_since = True
        _open("backward")
        try:
            return run(*args, **kwargs)
        finally:
            _close()
    _engine_run_backward.headroom_dry = True
    return _engine_run_backward


def _before_step(optimizer, args, kwargs):
    _open("optimizer")


def _after_step(optimizer, args, kwargs):
    global _count, _first, _backward_since
    _close()
    if _first is None:
        _first = id(optimizer)
        from . import places
        places.send()
    if id(optimizer) != _first or not _backward_since:
        return
    _backward_since = False
    _count += 1
    library.mark("step", type(optimizer).__name__, _count)
    if values is not None:
        values.new_step()
    why = _enough()
    if why:
        end(why, 0)


def _enough():
    if LIMIT:
        return f"{_count} optimizer steps were asked for" if _count >= LIMIT else None
    peak = library.peak() if library.peak is not None else None
    if peak is not None:
        _peaks.append(peak)
    if int(os.environ.get("WORLD_SIZE", "1") or 1) > 1 or peak is None:  # all ranks end at the same step
        return "three optimizer steps are done" if _count >= 3 else None
    if len(_peaks) > 1 and abs(_peaks[-1] - _peaks[-2]) <= max(_peaks) / 1000 and _peaks[-1] >= max(_peaks) * 0.999:
        return "the peaks of two optimizer steps agree"
    return f"{AT_MOST} optimizer steps are done; their peaks still differ" if _count >= AT_MOST else None


def end(why, code):
    """The program ends here, without a traceback. What it had registered for its end runs, for at most ten seconds."""
    global _ending
    if _ending:
        return
    _ending = True
    library.mark("end", why, code)
    watch = threading.Timer(10, os._exit, (code,))
    watch.daemon = True
    watch.start()
    try:
        atexit._run_exitfuncs()
    except BaseException:
        pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    os._exit(code)
