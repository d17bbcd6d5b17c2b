"""torch.compile's tuning. Inductor times several kernels for one product and keeps the fastest. Only a card knows these times, so PyTorch's own kernel
is kept, which fuses nothing and holds most. One template is compiled and run beside it, in memory as on a card, where all would be: what they
leave reserved there is not known, so the answer is "at least". torch.backends.cudnn.benchmark times cuDNN's convolutions: the library counts what that
takes (library/tries.h), and the answer is "at least" only where no card was asked. Kernels of Triton with several settings (triton.autotune) are measured
in memory as on a card, each in as much: the first that fits is compiled, and none is kept on disk. Inductor also times whether a product becomes faster with
padded matrices; such a program is run three times: with what a card is likely to choose, with none padded, with all."""
import functools
import inspect
import math
import os
import subprocess
import sys
import tempfile

from . import library
from .frames import own_frame
from .rules import PADDINGS

WORKERS_END_S = 3
_noted = False


def begin(after_import, torch):
    _benchmark(torch)
    # A cache of its own: a real run on this machine must not take what was chosen here.
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", os.path.join(tempfile.gettempdir(), f"headroom-dry-torchinductor-{os.getuid()}"))
    for cache in "TORCHINDUCTOR_FX_GRAPH_CACHE", "TORCHINDUCTOR_AUTOGRAD_CACHE":  # a graph of an earlier run has that run's paddings, and measures nothing
        os.environ.setdefault(cache, "0")
    after_import("torch._inductor.select_algorithm", _choices)
    after_import("torch._inductor.runtime.coordinate_descent_tuner", _tiles)
    after_import("torch._inductor.runtime.autotune_cache", _measured_again)
    after_import("torch._inductor.fx_passes.pad_mm", _pads)
    after_import("triton.runtime.autotuner", _settings)
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


def _settings(module):
    """Of the settings of one kernel the first that can run is compiled and measured; the others would take the same memory, and seconds each."""
    tuner = module.Autotuner
    run, bench = tuner.run, tuner._bench

    @functools.wraps(run)
    def run_once(self, *args, **kwargs):
        self.headroom_measured = None
        return run(self, *args, **kwargs)

    @functools.wraps(bench)
    def bench_once(self, *args, **kwargs):
        measured = getattr(self, "headroom_measured", None)
        if measured is not None:  # times are compared with each other: Triton 3.0 and 3.1 give one number for a CUDA graph, else several
            return [math.inf] * len(measured) if isinstance(measured, (list, tuple)) else math.inf
        times = bench(self, *args, **kwargs)
        if (times[0] if isinstance(times, (list, tuple)) else times) != math.inf:
            self.headroom_measured = times
        return times

    def check_disk_cache(self, tuning_key, configs, bench_fn):  # a real run must not take what was chosen here, nor a dry one what another chose
        bench_fn()
        return False

    tuner.run, tuner._bench = run_once, bench_once
    if hasattr(tuner, "check_disk_cache"):
        tuner.check_disk_cache = check_disk_cache


def _likely_padded(operations, odd_sum, odd_result, first_lies_across):
    """Of the products that an H200 was seen to time, it padded those whose sum has an odd length and runs across the first matrix (gradients of weights), and
    large ones whose sum or result's rows have one. A length is odd that is no multiple of 16 bytes."""
    return odd_sum and first_lies_across or (odd_sum or odd_result) and operations >= 1 << 34


def _of_product(mat1, mat2):
    """Its operations, whether its sum and its result's rows have odd lengths, and whether the sum runs across the first matrix."""
    size = lambda sizes: math.prod(n if isinstance(n, int) else n.node.hint or 1 for n in sizes)
    odd = [isinstance(n, int) and n * mat1.element_size() % 16 != 0 for n in (mat1.shape[-1], mat2.shape[-1])]  # what varies is not padded
    return 2 * size(mat1.shape) * size(mat2.shape[-1:]), *odd, size(mat1.stride()[-1:]) != 1


def _pads(module):
    """What inductor pads is measured in memory as on a card; the choice is none of the times here. Nothing that another run measured is taken."""
    decides = ("_should_pad", "is_padded_faster") if hasattr(module, "is_padded_faster") else ("_should_pad_bench", "should_pad")
    asked, faster = (getattr(module, name, None) for name in decides)
    if asked is None or faster is None or [*inspect.signature(faster).parameters] != ["key", "ori_time", "pad_time"]:
        return
    how, products, chosen, times = os.environ.get("HEADROOM_DRY_ROUTING", "random").partition("+")[0], [], {}, {}

    @functools.wraps(asked)
    def asked_of(match, mat1, mat2, *args, **kwargs):
        products.append(_of_product(mat1, mat2))
        try:
            return asked(match, mat1, mat2, *args, **kwargs)
        finally:
            products.pop()

    def is_padded_faster(key, ori_time, pad_time):
        if not chosen:
            frame = own_frame(sys._getframe())
            library.mark("routed", f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "torch.compile", PADDINGS)
        chosen[key] = how == "worst" or how != "balanced" and _likely_padded(*products[-1])
        return chosen[key]

    for name, ours in zip(decides, (asked_of, is_padded_faster)):
        setattr(module, name, ours)
    module.get_cached_should_pad, module.set_cached_should_pad = chosen.get, chosen.__setitem__
    module.get_cached_base_mm_benchmark_time, module.set_cached_base_mm_benchmark_time = times.get, times.__setitem__


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
