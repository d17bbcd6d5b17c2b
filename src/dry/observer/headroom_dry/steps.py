"""Optimizer steps, phases, and the program's end: after HEADROOM_DRY_STEPS steps, or (0) soon after the peaks of two steps agree (rest.py).

A step is counted when the program's first optimizer has stepped and a backward pass has run since it did so before: optimizers that update piece by
piece (ZeRO's groups, an optimizer a parameter) step once, two optimizers of one program are one step. One that steps inside a backward pass (a hook of
its gradient) ends the step with that pass. A program that runs no backward pass at all (forward gradients, evolution) takes a step each time.
A program that has made no optimizer updates by hand: after BY_HAND backward passes each further one is a step.
Where the first optimizer is gone, or has not stepped in ROUNDS backward passes after which another one did, that one is the first (folds, stages)."""
import atexit
import gc
import os
import sys
import threading
import weakref

from . import lbfgs, library, rest

LIMIT = int(os.environ.get("HEADROOM_DRY_STEPS", "0") or 0)
AT_MOST = 20  # steps, where peaks go on to differ
PATIENCE_S = 10  # with what a program does at its end
UPDATED_QUICKLY = 1 << 22  # bytes: a host updates them while a card computes a step
ROUNDS = 10  # a generator may step less often than a critic
BY_HAND = 100  # backward passes without an optimizer: fewer may come before one is made
OTHERS = (("fastai.optimizer", "Optimizer", "step"), ("keras.src.optimizers.base_optimizer", "BaseOptimizer", "apply"))  # optimizers that are no torch.optim's
AT_LEAST_WITH_GRAPHS = 4  # torch.compile's graphs: the first step compiles, the second warms up, the third captures
values = None  # a values.Values, if values are observed

_phases = []  # the open ones, innermost last; of the whole process
_count = 0
_backward_since = True
_ever_backward = False
_in_backward = None  # of a step whose optimizer stepped inside a backward pass: (its name, whether it warms up)
_torch = None
_first = None  # a weak reference to the first optimizer that stepped
_rounds = 0  # backward passes after which others stepped, since the first one did
_backward_since_others = False
_peaks = []  # (allocated, reserved) of each step
_ending = False
_is_made = False  # an optimizer
_without = 0  # backward passes before that
_captured_step = False  # an optimizer's step is part of the graph that is being captured: its replays are the steps
_trainers = []  # threads whose optimizers have stepped
_waiting = []  # threads that wait for a backward pass
_open = set()  # what was said of bytes that nothing here bounds
_captured_backward = False  # a backward pass is part of the graph that is being captured: its replays are backward passes


def begin(torch, after_import):
    global _torch
    _torch = torch  # first: what is replaced below asks for it, also where the rest fails
    after_import("torch._dynamo.trace_rules", _not_compiled)
    from torch.optim import lbfgs as searching, optimizer
    lbfgs.lengthen(searching)
    optimizer.register_optimizer_step_pre_hook(_before_step)
    optimizer.register_optimizer_step_post_hook(_after_step)
    for where in (torch.autograd.graph, torch.autograd):
        run = getattr(where, "_engine_run_backward", None)
        if run is not None:
            where._engine_run_backward = _backward(run)
    torch.save = _in_phase("saving", rest.save(torch.save))
    torch.load = _in_phase("loading", torch.load)
    torch.optim.Optimizer.__init__ = _made(torch.optim.Optimizer.__init__)
    for name, optimizer, method in OTHERS:
        after_import(name, lambda module, optimizer=optimizer, method=method: _others(getattr(module, optimizer), method))
    graph = getattr(torch.cuda, "CUDAGraph", None)
    if graph is not None:
        graph.capture_begin = _capture_begin(graph.capture_begin)
        graph.replay = _replay(graph.replay)
        graph.capture_end = _capture_end(graph.capture_end)


def _not_compiled(rules):
    """torch.compile of an optimizer's step would compile the observer's hooks with it."""
    add = getattr(rules, "add", None)
    if add is not None:
        add("headroom_dry")


def _made(init):
    import functools

    @functools.wraps(init)
    def made(self, *args, **kwargs):
        global _is_made
        if not _is_made:
            _is_made = True
            library.mark("optimizer")
        return init(self, *args, **kwargs)
    return made


def _others(optimizer, method):
    """Steps of a package's own optimizers."""
    import functools
    run = getattr(optimizer, method)

    @functools.wraps(run)
    def step(self, *args, **kwargs):
        _begin("optimizer")
        try:
            result = run(self, *args, **kwargs)
        except BaseException:
            _close()
            raise
        _after_step(self, args, kwargs)
        return result
    setattr(optimizer, method, step)
    optimizer.__init__ = _made(optimizer.__init__)


def _say_open(text, threads=1):
    """Once: why the program may need more than is seen here, with nothing that bounds it."""
    if (text, threads) not in _open:
        _open.add((text, threads))
        library.mark("open", text, threads)


def _say_threads():
    """Threads that train at once ask for memory in an order that the system decides. The main thread may only wait for another one. A step in a hook of a
    gradient runs in a thread of autograd's, for the one that waits for the backward pass."""
    own, main = threading.current_thread(), threading.main_thread()
    if _waiting and isinstance(own, threading._DummyThread):
        own = _waiting[-1]
    if own not in _trainers:
        _trainers.append(own)
    others = [t for t in _trainers if t is not own and t.is_alive()]
    if any(t is not main for t in others):
        _say_open("several threads train at once: the order in which they ask for memory is the system's", len(others) + 1)


def _begin(phase):
    _phases.append(phase)
    library.mark("phase", phase)


def is_in(phase):
    return phase in _phases


def _close():
    if _phases:
        _phases.pop()
    library.mark("phase", _phases[-1] if _phases else "")


def _in_phase(phase, run):
    import functools

    @functools.wraps(run)
    def inside(*args, **kwargs):
        _begin(phase)
        try:
            return run(*args, **kwargs)
        finally:
            _close()
    return inside


def _backward(run):
    if getattr(run, "headroom_dry", False):
        return run

    def _engine_run_backward(*args, **kwargs):
        global _backward_since, _backward_since_others, _captured_backward, _ever_backward
        _backward_since = _backward_since_others = _ever_backward = True
        _captured_backward = _captured_backward or _capturing()
        _begin("backward")
        own = threading.current_thread()
        _waiting.append(own)
        try:
            result = run(*args, **kwargs)
        finally:
            _waiting.remove(own)
            _close()
        _step_of_backward()
        _step_by_hand()
        return result
    _engine_run_backward.headroom_dry = True
    return _engine_run_backward


def _step_of_backward():
    global _in_backward
    if _in_backward is not None and "backward" not in _phases:
        (by, warms_up), _in_backward = _in_backward, None
        _step(by, warms_up)


def _step_by_hand():
    global _without
    if _is_made or "backward" in _phases or _capturing():
        return
    _without += 1
    if _without > BY_HAND:
        _step("a backward pass", warms_up=False)


def _capturing():
    return _torch.cuda.is_initialized() and _torch.cuda.is_current_stream_capturing()


def _before_step(optimizer, args, kwargs):
    """A closure (LBFGS, Lightning) has its own forward and backward pass inside the step: what it does is not the optimizer's."""
    _begin("optimizer")
    if isinstance(optimizer, _torch.optim.LBFGS):
        lbfgs.say()
    if _count == 0:
        _say_what_the_host_updates(optimizer)
    if len(args) > 1 and callable(args[1]):
        return (args[0], _in_phase("", args[1]), *args[2:]), kwargs
    if callable(kwargs.get("closure")):
        return args, {**kwargs, "closure": _in_phase("", kwargs["closure"])}
    return None


def _say_what_the_host_updates(optimizer):
    """Weights that an optimizer keeps and updates on the CPU (offloaded ones): nothing here says how long that takes."""
    size = sum(p.numel() * p.element_size() for group in optimizer.param_groups for p in group["params"] if p.device.type == "cpu")
    if size >= UPDATED_QUICKLY:
        library.mark("host update", type(optimizer).__name__, size)


def _replay(run):
    import functools

    @functools.wraps(run)
    def replay(self):
        global _backward_since
        if getattr(self, "headroom_has_backward", False):
            _backward_since = True
        result = run(self)
        if getattr(self, "headroom_has_step", False):
            _step("a replayed graph", warms_up=False)
        return result
    return replay


def _capture_begin(run):
    import functools

    @functools.wraps(run)
    def capture_begin(self, *args, **kwargs):
        global _captured_backward, _captured_step
        _captured_backward = _captured_step = False  # the capture failed
        return run(self, *args, **kwargs)
    return capture_begin


def _capture_end(run):
    import functools

    @functools.wraps(run)
    def capture_end(self):
        global _captured_backward, _captured_step
        self.headroom_has_backward, _captured_backward = _captured_backward, False
        self.headroom_has_step, _captured_step = _captured_step, False
        return run(self)
    return capture_end


def _after_step(optimizer, args, kwargs):
    global _backward_since, _captured_step, _in_backward
    _close()
    _say_threads()
    if _first is None:
        from . import places
        places.send()
    if not _is_first(optimizer) or _ever_backward and not _backward_since:
        return
    _backward_since = False
    if _capturing():
        _captured_step = True
        return
    cuda = _torch.cuda
    by, warms_up = type(optimizer).__name__, cuda.is_initialized() and cuda.current_stream() != cuda.default_stream()
    if "backward" in _phases:
        _in_backward = by, warms_up
    else:
        _step(by, warms_up)


def _is_first(optimizer):
    global _first, _rounds, _backward_since_others
    first = _first() if _first is not None else None
    if first is not None and first is not optimizer:
        _rounds += _backward_since_others
        _backward_since_others = False
    if first is None or _rounds >= ROUNDS:
        first, _first = optimizer, weakref.ref(optimizer)
    if first is optimizer:
        _rounds = 0
        _backward_since_others = False
    return first is optimizer


def _step(by, warms_up):
    """`warms_up`: on a stream of its own, as before a capture: what the program needs comes later."""
    global _count
    _count += 1
    library.mark("step", by, _count)
    if _count == 1:
        library.count_calls()
    if values is not None:
        values.new_step()
    if rest.why:
        if rest.is_long():
            end(rest.why, 0)
        return
    why = _enough(warms_up)
    if why and LIMIT:
        end(why, 0)
    elif why:
        rest.begin(why, end, alone=_ranks() == 1)


def _enough(warms_up=False):
    if LIMIT:
        return f"{_count} optimizer steps were asked for" if _count >= LIMIT else None
    peak = library.peak() if library.peak is not None else None
    if peak is not None:
        _peaks.append(peak)
    at_most = f"{AT_MOST} optimizer steps are done; their peaks still differ" if _count >= AT_MOST else None
    if warms_up:
        return at_most
    least = AT_LEAST_WITH_GRAPHS if "torch._inductor.cudagraph_trees" in sys.modules else 2
    if _ranks() > 1 or peak is None:  # all ranks end at the same step
        why = "several ranks are" if _ranks() > 1 else "a program whose peaks are not known is"
        return f"{why} run for that many" if _count >= max(3, least) else None
    if len(_peaks) >= least and all(_agree([p[i] for p in _peaks]) for i in range(2)):
        return "the peaks of two optimizer steps agree" if _is_made else "it makes no optimizer, and the peaks of two backward passes agree"
    return at_most


def _ranks():
    several = sys.modules.get("torch.distributed")
    if several is not None and several.is_available() and several.is_initialized():
        return several.get_world_size()
    return int(os.environ.get("WORLD_SIZE", "1") or 1)


def _agree(peaks):
    return abs(peaks[-1] - peaks[-2]) <= max(peaks) / 1000 and peaks[-1] >= max(peaks) * 0.999


def _end_workers():
    """Loaders of data end their workers as their objects go, which they do not here: killed workers leave folders."""
    kind = getattr(sys.modules.get("torch.utils.data.dataloader"), "_MultiProcessingDataLoaderIter", None)
    several = sys.modules.get("multiprocessing")
    if kind is None or several is None or not several.active_children():
        return
    for loader in [x for x in gc.get_objects() if type(x) is kind]:
        loader._shutdown_workers()


def is_ending():
    return _ending


def end(why, code, orderly=True):
    """The program ends here, without a traceback: the observer's own end, then what the program had registered for its end, for PATIENCE_S at most."""
    global _ending
    if _ending:
        return
    _ending = True
    if rest.why and code:  # enough was seen before
        library.mark("note", f"after its steps agreed, {why}")
        why, code = rest.why, 0
    library.mark("end", why, code)
    library.ended()
    watch = threading.Timer(PATIENCE_S, library.exit_now, (code,))
    watch.daemon = True
    watch.start()
    for finish in (_end_workers, atexit._run_exitfuncs) if orderly else ():
        try:
            finish()
        except BaseException:
            pass
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except Exception:
            pass
    library.exit_now(code)
