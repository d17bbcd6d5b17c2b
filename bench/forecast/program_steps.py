"""Runs a program in this process until its steps are measured: the columns of times.py's programs.csv."""
import dataclasses
import gc
import os
import runpy
import statistics
import sys
import tempfile
import time
import traceback

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook
from torch.profiler import ProfilerActivity, profile

import kernel_trace
from host_speed import REFERENCE_US, host_us_now
from quick_numbers import quick_numbers

PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
WARM_UP, LOOK = 4, 2
WINDOWS, WINDOW_S, SINGLE = 5, 0.35, 8


class Enough(BaseException):
    """The program has run long enough. No program catches it: it is no Exception."""


@dataclasses.dataclass
class Stretch:
    """Steps from an idle card to an idle card."""
    steps: int
    ms: float
    given_ms: float   # until the host has given all of it away
    waited_ms: float  # of that, in calls that wait for the card
    cpu_ms: float
    speed_us: float

    def scaled(self, ms):
        """As long as it would be on the reference host."""
        return ms * REFERENCE_US / self.speed_us


class Steps:
    """Hears from PyTorch of every optimizer's step, and ends the program by raising Enough."""

    def __init__(self, seconds, trace):
        self.until, self.trace = time.perf_counter() + seconds, trace
        self.optimizer, self.waited, self.profiler = None, 0.0, None
        self.windows, self.singles = [], []
        self.course = self.measure()
        self.left = next(self.course)
        register_optimizer_step_post_hook(self.after)
        self.hear_waits()

    def measure(self):
        """Yields how many steps the program is to take next."""
        yield WARM_UP
        gc.collect()
        look = yield from self.stretch(LOOK)
        n = int(min(40, max(3, WINDOW_S * 1e3 * LOOK / look.ms)))
        gc.collect()
        while len(self.windows) < WINDOWS and (time.perf_counter() < self.until or len(self.windows) < 2):
            self.windows.append((yield from self.stretch(n)))
        gc.collect()
        for _ in range(SINGLE):
            self.singles.append((yield from self.stretch(1)))
        if self.trace:
            gc.collect()
            with profile(activities=[ProfilerActivity.CUDA]) as profiler:
                yield from self.stretch(1)
            self.profiler = profiler

    def stretch(self, steps):
        torch.cuda.synchronize()
        self.waited = 0.0
        speed, cpu, begin = host_us_now(), time.process_time(), time.perf_counter()
        yield steps
        given, waited = time.perf_counter(), self.waited
        torch.cuda.synchronize()
        done, cpu = time.perf_counter(), time.process_time() - cpu
        return Stretch(steps, (done - begin) * 1e3, (given - begin) * 1e3, waited * 1e3, cpu * 1e3, (speed + host_us_now()) / 2)

    def after(self, optimizer, *_):
        self.optimizer = self.optimizer or optimizer
        if optimizer is not self.optimizer:  # of several optimizers the first counts the steps
            return
        self.left -= 1
        if self.left == 0:
            try:
                self.left = next(self.course)
            except StopIteration:
                raise Enough from None

    def hear_waits(self):
        """Calls of Python in which the host waits for the card."""
        def timed(run):
            def call(*args, **kwargs):
                begin = time.perf_counter()
                try:
                    return run(*args, **kwargs)
                finally:
                    self.waited += time.perf_counter() - begin
            return call
        for name in ("item", "tolist", "cpu", "__bool__", "__float__", "__int__"):
            setattr(torch.Tensor, name, timed(getattr(torch.Tensor, name)))

    def columns(self):
        def written(choose, of, value):
            return f"{choose(map(value, of)):.4f}" if of else ""

        def step(s):
            return s.ms / s.steps

        def host(s):
            return s.given_ms - s.waited_ms

        middle = statistics.median
        return {"ms": written(middle, self.windows, step), "ms_least": written(min, self.windows, step), "ms_most": written(max, self.windows, step),
                "windows": len(self.windows), "speed_us": written(middle, self.windows, lambda s: s.speed_us),
                "scaled_ms": written(middle, self.windows, lambda s: s.scaled(step(s))), "alone_ms": written(middle, self.singles, step),
                "host_ms": written(middle, self.singles, host), "scaled_host_ms": written(middle, self.singles, lambda s: s.scaled(host(s))),
                "waits_ms": written(middle, self.singles, lambda s: s.waited_ms), "cpu_ms": written(middle, self.windows, lambda s: s.cpu_ms / s.steps),
                "peak_allocated_bytes": torch.cuda.max_memory_allocated()}


COLUMNS = """program status ms ms_least ms_most windows speed_us scaled_ms alone_ms host_ms scaled_host_ms waits_ms cpu_ms kernels kernel_ms busy_ms
peak_allocated_bytes seconds why""".split()


def measured(program, seconds, kernels_file):
    """The row of a program; the kernels of one step go to the file, where one is named."""
    began, row, words = time.perf_counter(), {"program": program, "status": "ok"}, program.split()
    sys.path.insert(0, PROGRAMS)
    sys.argv = [words[0], *words[1:], "--steps", "2000"]
    os.chdir(tempfile.mkdtemp())
    quick_numbers(torch)
    steps = Steps(seconds, bool(kernels_file))
    try:
        runpy.run_path(os.path.join(PROGRAMS, words[0]), run_name="__main__")
        row.update(status="failed", why="it ended before enough steps")
    except Enough:
        pass
    except BaseException as e:
        traceback.print_exc()
        row.update(status="failed", why=f"{type(e).__name__}: {e}"[:200].replace("\n", " "))
    row.update(steps.columns())
    if steps.profiler:
        try:
            events = kernel_trace.events_of(steps.profiler)
            kernel_trace.append(kernels_file, program, events)
            row.update(kernel_trace.summary(events))
        except Exception as e:
            traceback.print_exc()
            row["why"] = f"no trace: {e}"[:200]
    row["seconds"] = f"{time.perf_counter() - began:.1f}"
    return row
