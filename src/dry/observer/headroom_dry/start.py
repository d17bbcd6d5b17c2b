"""Waits for the program's own import of PyTorch, then begins to observe. Nothing is imported before that, and a program without PyTorch stays as it is."""
import importlib.abc
import importlib.machinery
import importlib.util
import os
import sys

from . import library


DRY = os.environ.get("HEADROOM_DRY_VALUES", "1") != "0"  # else the program runs for real and is only listened to


def observe(torch):
    cuda = getattr(torch.version, "cuda", None)
    library.mark("torch", torch.__version__, int(cuda is not None))
    if cuda is None:
        if DRY:
            _end_without_cuda()
        return
    if _is_too_old(torch.__version__):
        old = f"PyTorch {torch.__version__} is older than 2.4, the oldest that a forecast knows"
        library.mark("note", f"{old}: values that it reads are 0, and recurrent layers fail")
    from . import places, requests, steps, substitutes
    places.begin(torch)
    requests.begin(torch)
    steps.begin(torch, after_import)
    if DRY:
        from . import searches, tuning, twins, values, weights
        steps.values = values.Values(twins.as_it_is(torch))
        searches.begin(after_import, steps.values)
        weights.begin(after_import, steps.values)
        tuning.begin(after_import, torch)
        hosts.begin(torch)
        limits.begin(torch)
    substitutes.begin(torch)


def _is_too_old(version):
    try:
        return tuple(int(n) for n in version.split(".")[:2]) < (2, 4)
    except ValueError:  # a build of one's own
        return False


def _end_without_cuda():
    """What it would do on the CPU says nothing of a card, and may take hours."""
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit(1)


def _begin_with(name, module, then):
    try:
        then(module)
    except Exception as e:  # the program goes on without an observer, and the answer says so
        library.mark("note", f"the observer could not begin with {name}: {type(e).__name__}: {e}")
        if os.environ.get("HEADROOM_DRY_TALK", "0") != "0":
            raise


class HalfMade(importlib.machinery.ModuleSpec):
    """The spec of a module whose code runs already: Python sets `_initializing` to False when that ends, well or not."""

    def __setattr__(self, attribute, value):
        super().__setattr__(attribute, value)
        if attribute == "_initializing" and not value:
            then = self.__dict__.pop("headroom_then")
            self.__class__ = importlib.machinery.ModuleSpec
            if self.name in sys.modules:
                _begin_with(self.name, sys.modules[self.name], then)


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds a module in the usual way, and calls `then` once its code has run; `before` just before that."""

    def __init__(self, name, then, before=lambda: None):
        self.name, self.then, self.before = name, then, before
        self.asking = False

    def find_spec(self, name, path=None, target=None):
        if name != self.name or self.asking:
            return None
        self.asking = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self.asking = False
        loader = spec.loader if spec is not None else None
        run = getattr(loader, "exec_module", None)
        if run is not None:
            def exec_module(module):
                loader.exec_module = run
                if self in sys.meta_path:  # until the import itself: others only ask whether the module is there
                    sys.meta_path.remove(self)
                self.before()
                run(module)
                _begin_with(name, module, self.then)
            loader.exec_module = exec_module
        return spec


def after_import(name, then, before=lambda: None):
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if getattr(spec, "_initializing", False) and type(spec) is importlib.machinery.ModuleSpec:  # this import is one of its own
        spec.headroom_then = then
        spec.__class__ = HalfMade
    elif module is not None:
        _begin_with(name, module, then)
    else:
        sys.meta_path.insert(0, AfterImport(name, then, before))


if library.version:
    from . import hosts, limits
    hosts.tell_the_world()
    after_import("torch", observe, limits.before_import if DRY else lambda: None)
