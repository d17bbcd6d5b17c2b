"""What calls of PyTorch cost the host: the work is so small that the card never holds the host up."""
import gc
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel


class Calls:
    """Times calls and hands each result on: write(name, best us, median us, calls)."""

    def __init__(self, write):
        self.write = write

    def __call__(self, name, call, n=200, repeats=7):
        """Microseconds of one of n calls: best and median of the repeats. One more repeat before them warms up."""
        times = []
        for _ in range(repeats + 1):
            begin = time.perf_counter()
            for _ in range(n):
                call()
            times.append((time.perf_counter() - begin) / n * 1e6)
            torch.cuda.synchronize()
        self.write(name, min(times[1:]), statistics.median(times[1:]), n)


def operations(each):
    x, y = torch.randn(64, 64, device="cuda"), torch.empty(64, 64, device="cuda")
    w = torch.randn(64, 64, device="cuda", requires_grad=True)
    c = torch.randn(4)

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
    each("layer_norm", lambda: F.layer_norm(x, (64,)))
    each("dropout", lambda: F.dropout(x, 0.1))
    image, kernel = torch.randn(2, 16, 32, 32, device="cuda"), torch.randn(16, 16, 3, 3, device="cuda")
    each("conv2d", lambda: F.conv2d(image, kernel, padding=1), 100)


def attention(each):
    q = torch.randn(1, 2, 128, 64, device="cuda", dtype=torch.bfloat16)
    learned = q.clone().requires_grad_()
    for backend in ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION"):
        try:
            with sdpa_kernel(getattr(SDPBackend, backend)):
                each("attention_" + backend.lower(), lambda: F.scaled_dot_product_attention(q, q, q, is_causal=True), 100)
                made = F.scaled_dot_product_attention(learned, q, q, is_causal=True)
                each("attention_backward_" + backend.lower(), lambda: torch.autograd.grad(made, learned, q, retain_graph=True), 100)
        except Exception as e:
            print(f"attention {backend}: {e}", file=sys.stderr)


def modules(each):
    class Nothing(nn.Module):
        def forward(self, x):
            return x

    x, nothing, linear = torch.randn(64, 64, device="cuda"), Nothing(), nn.Linear(64, 64, device="cuda")

    def autocast():
        with torch.autocast("cuda", torch.bfloat16):
            linear(x)

    each("module", lambda: nothing(x), 5000)
    nothing.register_forward_hook(lambda m, i, o: None)
    each("module_with_hook", lambda: nothing(x), 5000)
    each("linear", lambda: linear(x))
    each("autocast_linear", autocast)


def chains(each):
    """Chains of n operations, and of n leaves: the slope is what one more costs."""
    w = torch.randn(64, 64, device="cuda", requires_grad=True)

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
            torch.cat(leaves).sum().backward()
            for leaf in leaves:
                leaf.grad = None

        each(f"leaves_{n}_both", accumulate, 20)


def updates(each):
    """Calls that take a list of n tensors."""
    for n in (10, 100, 400):
        tensors, other = ([torch.randn(64, device="cuda") for _ in range(n)] for _ in range(2))
        each(f"foreach_add_{n}", lambda: torch._foreach_add_(tensors, other), 20)
        each(f"foreach_mul_scalar_{n}", lambda: torch._foreach_mul_(tensors, 1.0), 20)
        each(f"foreach_norm_{n}", lambda: torch._foreach_norm(tensors), 20)
        for how, option in (("fused", {"fused": True}), ("foreach", {"foreach": True}), ("loop", {"foreach": False})):
            for t in tensors:
                t.grad = torch.randn_like(t)
            each(f"adamw_{how}_{n}", torch.optim.AdamW(tensors, lr=1e-4, **option).step, 10 if how == "loop" else 20)
        for t in tensors:
            t.requires_grad_()
            t.grad = torch.randn_like(t)
        sgd = torch.optim.SGD(tensors, lr=1e-4, momentum=0.9)
        each(f"sgd_{n}", sgd.step, 20)
        each(f"clip_grad_norm_{n}", lambda: torch.nn.utils.clip_grad_norm_(tensors, 1.0), 20)
        each(f"zero_grad_{n}", sgd.zero_grad, 20)


def waits_and_copies(each):
    """The card is idle."""
    one, y = torch.zeros((), device="cuda"), torch.empty(64, 64, device="cuda")
    each("item", lambda: one.item(), 100)
    each("synchronize", torch.cuda.synchronize, 500)
    each("event_record", torch.cuda.Event().record, 500)
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


def memory(each):
    def malloc():
        torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
        torch.cuda.empty_cache()

    each("malloc_and_free_256MiB", malloc, 5)
    begin = time.perf_counter()
    gc.collect()
    each.write("gc_collect", (time.perf_counter() - begin) * 1e6, 0, len(gc.get_objects()))


def measure(write):
    each = Calls(write)
    for part in (operations, attention, modules, chains, updates, waits_and_copies, memory):
        part(each)
