#!/usr/bin/env python3
"""Measures on one card how long steps of programs take, what of it their host takes, and what a host's calls cost.

    python3 bench/forecast/times.py FOLDER [--seconds 420] [--only host,steps] [--programs "nanogpt.py; trainer.py"] [--cores 8]
    python3 bench/forecast/times.py FOLDER --only speed          anywhere, without a card: how fast this machine's Python is

Writes host.csv (microseconds of one call), programs.csv (milliseconds of a step), kernels.csv.gz (every kernel of one step), each line as it
comes. A program runs alone in a process of its own, on a few cores, until its hooks have seen enough steps:

  ms        median of windows of several steps, each from an idle card to an idle card
  speed_us  what Python takes meanwhile for a fixed piece of work (python_work): a host is not equally fast at all times
  scaled_ms median of the windows, each as long as it would be where that work takes 1.2 us
  host_ms   of one step that begins with an idle card: until the host has given all of it away. It is short of a step where the program waits
            for the card in between, as it does that prints a loss: `waits`, the time in calls that wait for the card, is taken away from it
"""
import argparse
import csv
import gc
import gzip
import json
import math
import os
import statistics
import sys
import tempfile
import time
import traceback

from quick_numbers import quick_numbers

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN = time.perf_counter()
WARM_UP = 4
WINDOWS, WINDOW_S, SINGLE = 5, 0.35, 8

# What takes long to begin comes last. Order decides what is measured where the time is short.
PROGRAMS = """nanogpt.py --batch 1 --len 128
trainer.py
causal.py --model llama
nanogpt.py
accelerated.py
families.py --model gpt-neox --optimizer NAdam
scaler.py
trainer.py --batch 1 --len 128
causal.py --model gpt2 --optimizer loop --batch 1 --len 64
nanogpt.py --layers 8 --width 2048 --heads 16
trainer.py --precision fp32 --batch 2 --len 768
accelerated.py --model llama --accumulate 2 --batch 2
plain.py --model encoder --precision bf16 --batch 24 --size 700
families.py --model qwen2 --precision bf16 --optimizer RMSprop --batch 3 --len 1536 --clip
trainer.py --model gpt2 --attention eager --batch 4 --len 512
seq2seq.py
nanogpt.py --layers 24 --batch 1 --len 128
trainer.py --precision bf16 --batch 4
causal.py --model olmo2 --optimizer adafactor --batch 2
lightning_gpt.py --no-validation
families.py --model bart --batch 6 --len 512 --accumulate 2
nanogpt.py --layers 6 --width 1280 --heads 20 --batch 6 --len 512
trainer.py --model qwen3 --batch 3 --accumulate 2
causal.py --model phi --precision bf16 --optimizer loop
accelerated.py --model llama-tiny --batch 1 --len 128
families.py --model deberta --precision fp16 --batch 8 --len 384 --clip
trainer.py --batch 2 --len 2048 --checkpoint
nanogpt.py --batch 2 --len 256 --accumulate 4
causal.py --model llama --optimizer sgd --batch 2 --len 256
scaler.py --model conv
families.py --model bloom --precision fp32 --batch 2 --len 512 --optimizer SGD
trainer.py --model olmo2 --optim adamw_torch
lightning_gpt.py --no-validation --model llama --accumulate 2 --precision bf16-true
causal.py --model gpt2 --optimizer adagrad --precision fp32 --batch 2
trainer.py --model gemma3 --batch 2
families.py --model swin --batch 40 --optimizer Adamax
nanogpt.py --compile default
trainer.py --model llama-1b --precision bf16 --checkpoint --batch 2 --len 2048
plain.py --model table --batch 4096 --size 8
families.py --model granite --precision bf16 --optimizer Adafactor --batch 6 --len 2048 --checkpoint
nanogpt.py --compile default --batch 1 --len 128
plain.py --model unet --precision bf16 --batch 6 --size 256
nanogpt.py --compile reduce-overhead --batch 4
trainer.py --layers 4 --compile
plain.py --model gan
causal.py --model qwen3-moe --batch 2
causal.py --model llama --compile reduce-overhead --batch 2""".splitlines()

HELD_OUT = """families.py --model falcon --batch 2 --len 640
families.py --model mixtral --batch 2 --len 768
families.py --model clip --precision fp16 --batch 48
families.py --model segformer --batch 12 --len 256
seq2seq.py --model whisper
trainer.py --model mistral --batch 2 --len 1536
trainer.py --model qwen3 --precision bf16 --checkpoint --batch 6 --len 1536 --optim adamw_torch
causal.py --model gemma3 --optimizer fused --batch 2 --len 1024
nanogpt.py --layers 8 --width 1024 --heads 8 --batch 10 --len 768
nanogpt.py --layers 3 --width 512 --heads 8 --batch 4 --len 256
accelerated.py --precision fp16 --workers 2
causal.py --model llama-tiny --precision bf16 --optimizer fused --batch 8 --len 128
lightning_gpt.py --no-validation --model mistral --precision 16-mixed --batch 3 --len 896
plain.py --model gru --batch 24 --size 250
scaler.py --model lstm
trainer.py --model llama-tiny --batch 2 --len 512 --accumulate 4""".splitlines()


def spent():
    return time.perf_counter() - BEGIN


# ---- How fast a host is, without a card and without PyTorch.

class Thing:
    def __init__(self):
        self.weight, self.children = 1.5, {"a": 1, "b": 2}

    def __call__(self, x, *rest, **names):
        return self.forward(x, *rest, **names)

    def forward(self, x, scale=None, **names):
        return x if scale is None else x * scale


def python_work(rounds=20_000):
    """Calls, attributes, dictionaries and small tuples, about as a training loop's Python has them."""
    thing, total, kept = Thing(), 0, {}
    for i in range(rounds):
        total += thing(i, scale=2, other=None)
        if isinstance(total, int) and hasattr(thing, "weight"):
            kept[i & 63] = (total, thing.children.get("a", 0))
        total = sum([n for _, n in (kept[i & 63], (1, 2))]) & 0xffff
    return total


def python_speed(repeats=7):
    best = math.inf
    for _ in range(repeats):
        begin = time.perf_counter()
        python_work()
        best = min(best, time.perf_counter() - begin)
    return best / 20_000 * 1e6


SPEED_US = 1.2


def speed_now(rounds=800, repeats=3):
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        python_work(rounds)
        times.append(time.perf_counter() - begin)
    return min(times) / rounds * 1e6


# ---- What calls cost the host.

class Host:
    def __init__(self, folder):
        self.file = open(os.path.join(folder, "host.csv"), "w", newline="")
        self.table = csv.writer(self.file)
        self.table.writerow("name us median_us calls".split())

    def __call__(self, name, call, n=200, repeats=7, wait=None):
        """Microseconds of one of n calls that the card does not hold up: best and median of the repeats."""
        times = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            for _ in range(n):
                call()
            times.append((time.perf_counter() - begin) / n * 1e6)
            if wait:
                wait()
        times = times[1:]
        self.write(name, min(times), statistics.median(times), n)

    def write(self, name, us, median, n):
        self.table.writerow([name, f"{us:.4f}", f"{median:.4f}", n])
        self.file.flush()


def about(out):
    name = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    out.write("processor: " + name.replace(",", " ") + f"; python {sys.version.split()[0]}", 0, 0, os.cpu_count())
    out.write("python_work", python_speed(), 0, 20_000)


def host(out):
    import torch
    import torch.nn as nn
    sync = torch.cuda.synchronize
    x, y = torch.randn(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    w = torch.randn(64, 64, device="cuda", requires_grad=True)
    c = torch.randn(4)

    def each(name, call, n=200):
        out(name, call, n, wait=sync)

    def empty():
        pass
    each("python_call", empty, 20000)
    each("cpu_view", lambda: c.view(2, 2), 2000)
    each("cpu_add", lambda: c + c, 2000)
    each("view", lambda: x.view(4096), 2000)
    each("view_with_autograd", lambda: w.view(4096), 2000)
    each("empty", lambda: torch.empty(4096, device="cuda"), 2000)
    each("empty_like", lambda: torch.empty_like(x), 2000)
    each("zero_", lambda: y.zero_())
    each("add_out", lambda: torch.add(x, x, out=y))
    each("add", lambda: x + x)
    each("add_with_autograd", lambda: w + x)
    each("mm", lambda: torch.mm(x, x, out=y))
    each("mm_with_autograd", lambda: torch.mm(w, x))
    each("to_bf16", lambda: x.to(torch.bfloat16))
    each("sum", lambda: x.sum())
    each("cat", lambda: torch.cat([x, x]))
    each("softmax", lambda: torch.softmax(x, -1))
    each("layer_norm", lambda: nn.functional.layer_norm(x, (64,)))
    each("dropout", lambda: nn.functional.dropout(x, 0.1))
    q = torch.randn(1, 2, 128, 64, device="cuda", dtype=torch.bfloat16)
    qg = q.clone().requires_grad_()
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                each("attention_" + backend.lower(), lambda: nn.functional.scaled_dot_product_attention(q, q, q, is_causal=True), 100)
                a = nn.functional.scaled_dot_product_attention(qg, q, q, is_causal=True)
                each("attention_backward_" + backend.lower(), lambda: torch.autograd.grad(a, qg, q, retain_graph=True), 100)
        except Exception as e:
            print(f"attention {backend}: {e}", file=sys.stderr)
    image, kernel = torch.randn(2, 16, 32, 32, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda")
    each("conv2d", lambda: nn.functional.conv2d(image, kernel, padding=1), 100)

    class Nothing(nn.Module):
        def forward(self, x):
            return x
    nothing = Nothing()
    each("module", lambda: nothing(x), 5000)
    nothing.register_forward_hook(lambda m, i, o: None)
    each("module_with_hook", lambda: nothing(x), 5000)
    linear = nn.Linear(64, 64, device="cuda")
    each("linear", lambda: linear(x))

    def autocast():
        with torch.autocast("cuda", torch.bfloat16):
            linear(x)
    each("autocast_linear", autocast)

    # Chains of n operations: the slope is what one more costs.
    def chain(n):
        z = w
        for _ in range(n):
            z = z * 1.5
        return z

    for n in (10, 100):
        each(f"chain_{n}_forward", lambda: chain(n), 20)
        z = chain(n).sum()
        each(f"chain_{n}_backward", lambda: torch.autograd.grad(z, w, retain_graph=True), 20)
        views = w
        for _ in range(n):
            views = views.t()
        views = views.sum()
        each(f"views_{n}_backward", lambda: torch.autograd.grad(views, w, retain_graph=True), 20)
    for n in (10, 100):
        leaves = [torch.randn(64, device="cuda", requires_grad=True) for _ in range(n)]

        def accumulate():
            sum_of = torch.cat(leaves).sum()
            sum_of.backward()
            for leaf in leaves:
                leaf.grad = None
        each(f"leaves_{n}_both", accumulate, 20)
    for n in (10, 100, 400):
        tensors = [torch.randn(64, device="cuda") for _ in range(n)]
        other = [torch.randn(64, device="cuda") for _ in range(n)]
        each(f"foreach_add_{n}", lambda: torch._foreach_add_(tensors, other), 20)
        each(f"foreach_mul_scalar_{n}", lambda: torch._foreach_mul_(tensors, 1.0), 20)
        each(f"foreach_norm_{n}", lambda: torch._foreach_norm(tensors), 20)
        for how in ("fused", "foreach", "loop"):
            for t in tensors:
                t.grad = torch.randn_like(t)
            o = torch.optim.AdamW(tensors, lr=1e-4, **({how: True} if how != "loop" else {"foreach": False}))
            each(f"adamw_{how}_{n}", o.step, 10 if how == "loop" else 20)
        for t in tensors:
            t.requires_grad_()
            t.grad = torch.randn_like(t)
        o = torch.optim.SGD(tensors, lr=1e-4, momentum=0.9)
        each(f"sgd_{n}", o.step, 20)
        each(f"clip_grad_norm_{n}", lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0), 20)
        each(f"zero_grad_{n}", o.zero_grad, 20)
    # Waits and copies: the card is idle.
    one = torch.zeros((), device="cuda")
    each("item", lambda: one.item(), 100)
    each("synchronize", sync, 500)
    event = torch.cuda.Event()
    each("event_record", event.record, 500)
    ids = torch.zeros(4, 1024, dtype=torch.int64)
    pinned = ids.pin_memory()
    each("to_device", lambda: ids.to("cuda"), 100)
    each("to_device_pinned", lambda: pinned.to("cuda", non_blocking=True), 100)
    each("pin_memory", lambda: ids.pin_memory(), 100)
    each("randint_cpu_4096", lambda: torch.randint(1000, (4, 1024)), 100)
    each("randn_cpu_1e5", lambda: torch.randn(100_000), 50)
    each("randint_cuda_4096", lambda: torch.randint(1000, (4, 1024), device="cuda"), 100)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(100):
            y.add_(1)
    each("graph_of_100", graph.replay, 10)

    def malloc():
        torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()
    each("malloc_and_free_256MiB", malloc, 5)
    begin = time.perf_counter()
    gc.collect()
    out.write("gc_collect", (time.perf_counter() - begin) * 1e6, 0, len(gc.get_objects()))


# ---- Steps of programs.

class Enough(BaseException):
    """The program has run long enough."""


class Steps:
    """Times the program's steps from a hook that PyTorch calls behind every optimizer's step; ends the program by raising Enough."""

    def __init__(self, folder, program, seconds):
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        self.torch, self.folder, self.program, self.until = torch, folder, program, time.perf_counter() + seconds
        self.first, self.count, self.left = None, 0, WARM_UP
        self.what, self.windows, self.hosts, self.alone, self.cpu, self.waits = "warm up", [], [], [], [], []
        self.waited, self.profiler = 0.0, None
        self.speeds, self.host_speeds, self.trace_too = [], [], os.environ.get("HEADROOM_TIMES_TRACE", "1") != "0"
        register_optimizer_step_post_hook(self.after)
        self.hear_waits()

    def hear_waits(self):
        """Calls of Python in which the host waits for the card."""
        torch = self.torch

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

    def begin(self, what, left):
        self.torch.cuda.synchronize()
        if what != self.what:
            gc.collect()
        self.what, self.left, self.n, self.waited = what, left, left, 0.0
        self.speed = speed_now()
        self.cpu_began, self.began = time.process_time(), time.perf_counter()

    def after(self, optimizer, *_):
        if self.first is None:
            self.first = id(optimizer)
        if id(optimizer) != self.first:
            return
        self.count += 1
        self.left -= 1
        if self.left > 0:
            return
        given, waited = time.perf_counter(), self.waited
        self.torch.cuda.synchronize()
        done = time.perf_counter()
        cpu = time.process_time()
        speed = (self.speed + speed_now()) / 2 if self.what in ("window", "single") else 0
        if self.what == "warm up":
            self.begin("look", 2)
        elif self.what == "look":
            n = int(min(40, max(3, WINDOW_S / ((done - self.began) / 2))))
            self.begin("window", n)
        elif self.what == "window":
            self.windows.append((done - self.began) / self.n * 1e3)
            self.speeds.append(speed)
            self.cpu.append((cpu - self.cpu_began) / self.n * 1e3)
            if len(self.windows) < WINDOWS and (done < self.until or len(self.windows) < 2):
                self.begin("window", self.n)
            else:
                self.begin("single", 1)
        elif self.what == "single":
            self.hosts.append((given - self.began) * 1e3)
            self.waits.append(waited * 1e3)
            self.alone.append((done - self.began) * 1e3)
            self.host_speeds.append(speed)
            if len(self.hosts) < SINGLE:
                self.begin("single", 1)
            elif not self.trace_too:
                raise Enough
            else:
                from torch.profiler import ProfilerActivity, profile
                self.profiler = profile(activities=[ProfilerActivity.CUDA])
                self.profiler.__enter__()
                self.begin("trace", 1)
        else:
            self.profiler.__exit__(None, None, None)
            raise Enough

    def row(self):
        middle = lambda xs: f"{statistics.median(xs):.4f}" if xs else ""
        return {"ms": middle(self.windows), "ms_least": f"{min(self.windows):.4f}" if self.windows else "",
                "ms_most": f"{max(self.windows):.4f}" if self.windows else "", "window_steps": getattr(self, "n", 0) and len(self.windows),
                "alone_ms": middle(self.alone), "host_ms": middle([h - w for h, w in zip(self.hosts, self.waits)]), "waits_ms": middle(self.waits),
                "speed_us": middle(self.speeds), "scaled_ms": middle([m * SPEED_US / s for m, s in zip(self.windows, self.speeds)]),
                "scaled_host_ms": middle([(h - w) * SPEED_US / s for h, w, s in zip(self.hosts, self.waits, self.host_speeds)]),
                "cpu_ms": middle(self.cpu), "peak_allocated_bytes": self.torch.cuda.max_memory_allocated()}

    def trace(self):
        """The kernels of one step: how many, how long together, how long at least one ran."""
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "trace.json")
            self.profiler.export_chrome_trace(path)
            with open(path) as f:
                events = [e for e in json.load(f)["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
        events.sort(key=lambda e: e["ts"])
        with gzip.open(os.path.join(self.folder, "kernels.csv.gz"), "at", newline="") as f:
            table = csv.writer(f)
            for e in events:
                a = e.get("args", {})
                table.writerow([self.program, f"{e['ts']:.2f}", f"{e['dur']:.3f}", a.get("stream", ""), "x".join(map(str, a.get("grid", []))),
                                "x".join(map(str, a.get("block", []))), a.get("bytes", ""), e["name"][:300]])
        busy, at = 0.0, 0.0
        for e in events:
            begin, end = max(at, e["ts"]), e["ts"] + e["dur"]
            busy += max(0.0, end - begin)
            at = max(at, end)
        return {"kernels": len(events), "kernel_ms": f"{sum(e['dur'] for e in events) / 1e3:.4f}", "busy_ms": f"{busy / 1e3:.4f}"}


COLUMNS = """program status ms ms_least ms_most window_steps speed_us scaled_ms alone_ms host_ms scaled_host_ms waits_ms cpu_ms kernels kernel_ms busy_ms
peak_allocated_bytes seconds
why""".split()


def one(folder, program, seconds):
    """Runs a program in this process; returns its row."""
    import runpy
    import torch
    began, row, words = time.perf_counter(), {"program": program, "status": "ok"}, program.split()
    sys.path.insert(0, os.path.join(HERE, "programs"))
    os.chdir(tempfile.mkdtemp())
    steps = None
    try:
        quick_numbers(torch)
        steps = Steps(folder, program, seconds)
        sys.argv = [words[0], *words[1:], "--steps", "2000"]
        runpy.run_path(os.path.join(HERE, "programs", words[0]), run_name="__main__")
        row.update(status="failed", why="it ended before enough steps")
    except Enough:
        pass
    except BaseException as e:
        traceback.print_exc()
        row.update(status="failed", why=f"{type(e).__name__}: {e}"[:200].replace("\n", " "))
    if steps is not None:
        row.update(steps.row())
        if row["status"] == "ok" and steps.trace_too:
            try:
                row.update(steps.trace())
            except Exception as e:
                traceback.print_exc()
                row["why"] = f"no trace: {e}"[:200]
    row["seconds"] = f"{time.perf_counter() - began:.1f}"
    return row


def in_child(folder, program, seconds, timeout, environment):
    """The same in a fork of this process, which has imported what takes long and has not touched the card."""
    import signal
    path = os.path.join(folder, "row.json")
    if os.path.exists(path):
        os.remove(path)
    sys.stdout.flush()
    sys.stderr.flush()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.environ.update(environment)
            log = os.open(os.path.join(folder, "log.txt"), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
            os.dup2(log, 1)
            os.dup2(log, 2)
            print(f"==== {program}", flush=True)
            row = one(folder, program, seconds)
            with open(path + ".new", "w") as f:
                json.dump(row, f)
            os.rename(path + ".new", path)
        finally:
            os._exit(0)
    end = time.perf_counter() + timeout
    while time.perf_counter() < end and os.waitpid(child, os.WNOHANG)[0] == 0:
        time.sleep(0.02)
    else:
        if time.perf_counter() >= end:
            os.killpg(child, signal.SIGKILL)
            os.waitpid(child, 0)
    if not os.path.exists(path):
        return {"program": program, "status": "failed", "why": f"nothing within {timeout:.0f} s, or it crashed"}
    with open(path) as f:
        return json.load(f)


BEFORE_FORK = ["transformers", "transformers.models.llama.modeling_llama", "transformers.models.gpt2.modeling_gpt2", "transformers.trainer", "accelerate"]


def import_without_card(modules):
    """Imports modules that ask whether there is a card; the driver would begin with that, and no fork could use the card then."""
    import torch
    import torch.profiler  # noqa: F401
    kept = torch.cuda.is_available, torch.cuda.device_count
    torch.cuda.is_available, torch.cuda.device_count = (lambda: True), (lambda: 1)
    try:
        for name in modules:
            try:
                __import__(name)
            except Exception as e:
                print(f"{name}: {e}", file=sys.stderr)
    finally:
        torch.cuda.is_available, torch.cuda.device_count = kept


def steps(folder, until, programs, seconds):
    """In a fork of this process, whose forks can use the card: with as many modules imported before as that allows."""
    for modules in (BEFORE_FORK, []):
        child = os.fork()
        if child == 0:
            try:
                import_without_card(modules)
                if not forks_have_the_card():
                    os._exit(9)
                steps_here(folder, until, programs, seconds)
                os._exit(0)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != 9:
            return
        print("these imports began the driver; once more without them", flush=True)


def forks_have_the_card():
    child = os.fork()
    if child == 0:
        try:
            import torch
            torch.zeros(1, device="cuda")
            os._exit(0)
        except BaseException as e:
            print(e, file=sys.stderr, flush=True)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0


def steps_here(folder, until, programs, seconds):
    print(f"imported: {spent():.1f} s", flush=True)
    with open(os.path.join(folder, "programs.csv"), "w", newline="") as f:
        table = csv.DictWriter(f, COLUMNS, extrasaction="ignore")
        table.writeheader()
        for program in programs:
            compiles = "compile" in program
            if spent() > until - (45 if compiles else 12):
                row = {"program": program, "status": "no time"}
            else:
                environment = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
                if compiles:
                    fresh = tempfile.mkdtemp()
                    environment.update(TORCHINDUCTOR_CACHE_DIR=fresh + "/inductor", TRITON_CACHE_DIR=fresh + "/triton")
                row = in_child(folder, program, seconds, min(120 if compiles else 45, until - spent() + 10), environment)
            table.writerow(row)
            f.flush()
            print(f"{spent():6.1f} s  {program}: {row['status']} {row.get('ms', '')} ms, host {row.get('host_ms', '')}, busy {row.get('busy_ms', '')} "
                  f"{row.get('why', '')}", flush=True)


def programs_of(words):
    if words == "held-out":
        return HELD_OUT
    if words == "again":  # what none of them has seen, and those that wait for their host
        return HELD_OUT + [p for p in PROGRAMS if "compile" not in p]
    return [q.strip() for q in words.split(";") if q.strip()] or PROGRAMS


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("--seconds", type=float, default=420, help="for all of it; a program that would begin too late is left out")
    p.add_argument("--each", type=float, default=6, help="seconds after which a program measures no further window")
    p.add_argument("--only", default="steps,host", help="of host, steps, speed")
    p.add_argument("--programs", default="", help="these in place of the usual ones; a semicolon between two; or: held-out, again")
    p.add_argument("--no-trace", action="store_true", help="of no step its kernels: two seconds less for each program")
    p.add_argument("--cores", type=int, default=8, help="that a program may use: it is bound to the first of those that are allowed")
    a = p.parse_args()
    folder = os.path.abspath(a.folder)
    os.makedirs(folder, exist_ok=True)
    os.environ["PYTORCH_NVML_BASED_CUDA_CHECK"] = "1"  # torch.cuda.is_available() then leaves the driver alone, and a fork can begin it
    os.environ["HEADROOM_TIMES_TRACE"] = str(int(not a.no_trace))
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:a.cores])
    os.environ.setdefault("OMP_NUM_THREADS", str(min(a.cores, len(cores))))
    out = Host(folder)
    about(out)
    for part in a.only.split(","):
        began = spent()
        try:
            if part == "host":
                host(out)
            elif part == "steps":
                steps(folder, a.seconds, programs_of(a.programs), a.each)
        except Exception:
            traceback.print_exc()
        print(f"{part}: {spent() - began:.1f} s", flush=True)
    out.write("python_work, at the end", python_speed(), 0, 20_000)


if __name__ == "__main__":
    main()
