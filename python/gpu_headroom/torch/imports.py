"""What is done once another package is imported: importing it here would cost seconds to people who do not use it."""

import importlib.abc
import sys


class _WhenImported(importlib.abc.MetaPathFinder):
    """Stays until the module has been loaded: many programs look for a module (importlib.util.find_spec) before they import it, or never do."""

    def __init__(self, name, then):
        self.name, self.then = name, then

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        behind = sys.meta_path[sys.meta_path.index(self) + 1 :]
        spec = next(filter(None, (finder.find_spec(name, path, target) for finder in behind if hasattr(finder, "find_spec"))), None)
        load = getattr(spec and spec.loader, "exec_module", None)
        if load is None:
            return spec

        def loaded(module):
            load(module)
            if self in sys.meta_path:
                sys.meta_path.remove(self)
                self.then(module)

        spec.loader.exec_module = loaded
        return spec


def when_imported(name, then):
    """then(module), now if the module `name` is there, or as soon as it is imported."""
    module = sys.modules.get(name)
    if module is not None:
        then(module)
    else:
        sys.meta_path.insert(0, _WhenImported(name, then))
