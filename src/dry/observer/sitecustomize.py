"""Put first on Python's path by `headroom forecast`: begins the observer, then runs the sitecustomize that this one hides."""
import os
import sys

_here = os.path.dirname(os.path.abspath(__file__))
try:
    if os.environ.get("HEADROOM_DRY_OBSERVE", "1") != "0":
        from headroom_dry import start
finally:
    def _hidden():
        import importlib.machinery
        import importlib.util
        path = [p for p in sys.path if os.path.abspath(p or os.curdir) != _here]
        spec = importlib.machinery.PathFinder.find_spec("sitecustomize", path)
        if spec is not None and spec.loader is not None:
            module = importlib.util.module_from_spec(spec)
            sys.modules["sitecustomize"] = module
            spec.loader.exec_module(module)
    _hidden()
