"""Settings of PyTorch's own allocator. A limit that the program sets (torch.cuda.set_per_process_memory_fraction, or the setting of that name) is said with
its line; in the run with unlimited memory it does not hold, so that run finds what the program needs. A setting that `--try` tries is added to those of the
program, wherever it gives them."""
import os
import re
import sys

from . import library
from .frames import own_frame

SETTING = re.compile(r"(?:^|,)\s*per_process_memory_fraction\s*:\s*([0-9.eE+-]+)\s*")
VARIABLES = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
TRIED = os.environ.get("HEADROOM_DRY_ALLOCATOR", "")  # "max_split_size_mb:64"
EVERY_CARD = -1
HOLDS = ";unlimited=1" not in ";" + os.environ.get("HEADROOM_DRY_CARD", "")


def _say(where, card, fraction):
    library.mark("fraction", f"{where} {card} {fraction!r}")


def _line():
    frame = own_frame(sys._getframe())
    return f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame is not None else "the program"


def _without(settings, where):
    """The allocator's settings without a limit where it does not hold, and the limit is said."""
    for found in SETTING.findall(settings):
        try:
            _say(where, EVERY_CARD, float(found))
        except ValueError:
            return settings  # PyTorch says what is wrong
    return settings if HOLDS else SETTING.sub("", settings).strip(",")


def _with_tried(settings):
    """Those of the program's own that have the same names give way."""
    names = "|".join(re.escape(one.partition(":")[0]) for one in TRIED.split(","))
    own = re.sub(rf"(?:^|,)\s*(?:{names})\s*:\s*(?:\[[^]]*\]|[^,]*)", "", settings).strip(", ")
    return f"{own},{TRIED}" if own else TRIED


def _variables():
    """Those that are set and that this PyTorch reads: before 2.9 the older name alone. Its package's record says which version it is, before it is imported."""
    there = [name for name in VARIABLES if os.environ.get(name)]
    if VARIABLES[1] in there:
        from importlib.metadata import PackageNotFoundError, version  # most programs need not import it
        try:
            major, minor = version("torch").split(".")[:2]
            if (int(major), int(minor)) < (2, 9):
                there.remove(VARIABLES[1])
        except (PackageNotFoundError, ValueError):
            pass  # built where it stands, or by another numbering
    return there


def before_import():
    for name in (_variables() or VARIABLES[:1]) if TRIED else ():
        os.environ[name] = _with_tried(os.environ.get(name, ""))
    for name in _variables():
        settings = os.environ.get(name)
        if not settings or "per_process_memory_fraction" not in settings:
            continue
        settings = _without(settings, name)
        if settings:
            os.environ[name] = settings
        else:
            del os.environ[name]


def begin(torch):
    told = {}  # by card, where it does not hold

    def fraction(run):
        def _cuda_setMemoryFraction(fraction, device):
            if not 0 <= fraction <= 1:
                return run(fraction, device)
            _say(_line(), device, fraction)
            if HOLDS:
                return run(fraction, device)
            told[device] = fraction
        return _cuda_setMemoryFraction

    def init(run):
        def _cuda_init():
            before_import()  # of a program that sets its variable after the import
            return run()
        return _cuda_init

    def told_fraction(run):
        return lambda device: told[device] if device in told else run(device)

    def setter(run):
        def set_allocator_settings(settings):
            if isinstance(settings, str):
                settings = _without(_with_tried(settings) if TRIED else settings, _line())
            return run(settings)
        return set_allocator_settings

    for name, around in (("_cuda_init", init), ("_cuda_setMemoryFraction", fraction), ("_cuda_getMemoryFraction", told_fraction), ("_cuda_cudaCachingAllocator_set_allocator_settings", setter),
                         ("_accelerator_setAllocatorSettings", setter)):
        run = getattr(torch._C, name, None)
        if run is not None:
            setattr(torch._C, name, around(run))
