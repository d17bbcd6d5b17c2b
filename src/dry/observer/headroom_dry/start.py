"""Waits for the program's own import of PyTorch, then begins to observe. Nothing is imported before that, and a program without PyTorch stays as it is."""
import importlib.abc
import importlib.util
import os
import sys

from . import library


def observe(torch):
    cuda = getattr(torch.version, "cuda", None)
    library.mark("torch", torch.__version__, int(cuda is not None))
    if cuda is None:
        return
    from . import places, requests, steps, substitutes
    places.begin(torch)
    requests.begin(torch)
    steps.begin(torch)
    if os.environ.get("HEADROOM_DRY_VALUES", "1") != "0":
        from . import values
        steps.values = values.Values(torch)
    substitutes.begin(torch)


class AfterImport(importlib.abc.MetaPathFinder):
    """Finds `torch` in the usual way, and calls `observe` once its code has run."""

    def find_spec(self, name, path=None, target=None):
        if name != "torch":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        loader = spec.loader if spec is not None else None
        run = getattr(loader, "exec_module", None)
        if run is not None:
            def exec_module(module):
                loader.exec_module = run
                run(module)
                try:
                    observe(module)
                except Exception as e:  # the program goes on without an observer, and the answer says so
                    library.mark("note", f"the observer could not begin: {type(e).__name__}: {e}")
                    if os.environ.get("HEADROOM_DRY_TALK", "0") != "0":
                        raise
            loader.exec_module = exec_module
        return spec


if library.version:
    sys.meta_path.insert(0, AfterImport())
