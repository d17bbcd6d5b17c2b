"""Where memory is asked for: the layout of Python's frames is told to the library, which reads them at every block; modules get their paths here.

Modules have no hooks: hooks change what torch.compile traces. The library numbers the modules whose calls it sees in the frames, by their addresses;
the names of these numbers are sent with the first optimizer step and at the end."""
import ctypes
import gc
import os

from . import library

_parents = {}  # address of a module -> (address of the one that holds it, its name there)
_sent = {}
_torch = None
WRAPPERS = {"module", "_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_forward_module"}


def begin(torch):
    global _torch
    _torch = torch
    tell = getattr(library, "python", None)
    if tell is not None:
        try:
            from . import layout
            learned = layout.learn(torch)
            tell(ctypes.byref(learned))
        except (StopIteration, ValueError, OSError, KeyError) as e:
            library.mark("note", f"Python's frames are not known in this interpreter ({type(e).__name__}: {e}): blocks have no lines")
    torch.nn.modules.module.register_module_module_registration_hook(untraced(torch, _registered))
    library.at_end(send)


def untraced(torch, note):
    """A hook of what modules get. torch.compile goes through it where a forward pass makes a module (`layers[:n]` of a ModuleList), and breaks its graph at
    what it may not trace: the observer's files. So it is told to be of none of them, and does nothing there."""
    is_compiling = torch.compiler.is_compiling if hasattr(torch, "compiler") else bool

    def registered(module, name, got):
        if not is_compiling():
            note(module, name, got)

    registered.__code__ = registered.__code__.replace(co_filename="<registered>")
    return registered


def _registered(parent, name, child):
    if child is not None:
        _parents[id(child)] = id(parent), name


def _path(address):
    words = []
    while address in _parents and len(words) < 64:
        address, name = _parents[address]
        if name not in WRAPPERS:
            words.append(name)
    return ".".join(reversed(words))


def send():
    """The names of all modules: of those that are there, by the modules that hold them; of others, by their registration."""
    names = {address: _path(address) for address in _parents}
    module = _torch.nn.Module
    # (isinstance would ask objects for their class; one that is being made may have no children yet)
    living = [m for m in gc.get_objects() if issubclass(type(m), module) and getattr(m, "_modules", None) is not None]
    held = {id(child) for m in living for child in m._modules.values() if child is not None}
    for root in living:
        if id(root) in held:
            continue
        for path, m in root.named_modules():
            words = [w for w in path.split(".") if w not in WRAPPERS]
            names[id(m)] = ".".join(words) if any(words) else type(root).__name__
    if _sent.get("process") != os.getpid():  # a forked child writes a record of its own
        _sent.clear()
        _sent["process"] = os.getpid()
    for address, name in names.items():
        number = library.object(address) if name and library.object is not None and _sent.get(address) != name else 0
        if number:
            _sent[address] = name
            library.mark("scope", name, number)
