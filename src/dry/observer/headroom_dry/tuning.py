"""torch.compile's tuning. Inductor times several kernels for one product and keeps the fastest. Only a card knows these times, so PyTorch's own kernel
is kept, which fuses nothing and holds most. One template is compiled and run beside it, in memory as on a card, where all would be: what they
leave reserved there is not known, so the answer is "at least". torch.backends.cudnn.benchmark times cuDNN's convolutions: its answer is
"at least", too, where there are convolutions."""
import functools
import os
import subprocess
import tempfile

from . import library

WORKERS_END_S = 3
_noted = False


def begin(after_import, torch):
    _benchmark(torch)
    # A cache of its own: a real run on this machine must not take what was chosen here.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"headroom-dry-torchinductor-{os.getuid()}"))
    after_import("torch._inductor.select_algorithm", _choices)
    after_import("torch._inductor.runtime.coordinate_descent_tuner", _tiles)
    after_import("torch._inductor.runtime.autotune_cache", _measured_again)
    after_import("torch._inductor.compile_worker.subproc_pool", _workers)


def _own(choice):
    return type(choice).__name__ == "ExternKernelCaller"


def _fewer(choices):
    """PyTorch's own kernels and one template; two templates where PyTorch has no kernel of its own."""
    own = [c for c in choices if _own(c)]
    return own + [c for c in choices if not _own(c)][:1 if own else 2]


def _ranked(timings):
    """The measured choices in their order, PyTorch's own first. A choice that failed stays without a time."""
    order = sorted(timings, key=lambda c: not _own(c))
    return {c: timings[c] if timings[c] == float("inf") else 1e-3 if i == 0 else 1e3 + i for i, c in enumerate(order)}


def _note():
    global _noted
    if not _noted:
        _noted = True
        library.mark("tuned", "torch.compile would choose kernels by their times on the card; PyTorch's own were kept")


def _benchmark(torch):
    """Both ways to set it, the module's property and the flags() around a block, say so."""
    run = getattr(torch._C, "_set_cudnn_benchmark", None)
    if run is None:
        return

    def _set_cudnn_benchmark(on):
        if on is True:
            library.mark("benchmark", "torch.backends.cudnn.benchmark would choose cuDNN's convolutions by their times on the card")
        return run(on)

    torch._C._set_cudnn_benchmark = _set_cudnn_benchmark
    setting = type(torch.backends.cudnn).__dict__.get("benchmark")
    if getattr(setting, "setter", None) is run:
        setting.setter = _set_cudnn_benchmark


def _choices(module):
    cache = module.AlgorithmSelectorCache
    call, make = cache.__call__, cache.make_benchmark_fn.__func__

    @functools.wraps(call)
    def chosen(self, name, choices, *args, **kwargs):
        if len(choices) > 1:
            _note()
        return call(self, name, _fewer(choices), *args, **kwargs)

    @functools.wraps(make)
    def make_benchmark_fn(cls, *args, **kwargs):
        benchmark = make(cls, *args, **kwargs)
        return lambda *a, **k: _ranked(benchmark(*a, **k))

    cache.__call__, cache.make_benchmark_fn = chosen, classmethod(make_benchmark_fn)


def _tiles(module):
    def autotune(self, func, baseline_config, baseline_timing=None):
        if baseline_timing is None:
            self.call_func(func, baseline_config)
        return baseline_config

    module.CoordescTuner.autotune = autotune


def _measured_again(module):
    """A kernel with several settings is measured in its first call, in memory. What an earlier dry run chose would leave that out."""
    module.AutotuneCache.read_best = lambda self, *args, **kwargs: None


def _workers(module):
    """The process of compile workers sometimes waits for its own forks for ever, and PyTorch 300 s for it at the program's end."""
    shutdown = module.SubprocPool.shutdown

    @functools.wraps(shutdown)
    def shutdown_soon(self):
        process = self.process
        wait = process.wait

        def wait_or_kill(timeout=None):
            try:
                return wait(WORKERS_END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                return wait()

        process.wait = wait_or_kill
        try:
            return shutdown(self)
        finally:
            process.wait = wait
    module.SubprocPool.shutdown = shutdown_soon
