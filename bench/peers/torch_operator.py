"""What gpu_headroom.torch costs and gains in torch, measured in turns in one process.

    python bench/peers/torch_operator.py                    # overhead of a call on the host; on a GPU also times of attention

Overhead is the time of a call on the host while nothing waits for its result: of a tiny problem, with and without gradients; and that of the
C call within it, which on a CPU computes too. Queueing, on a GPU: how long a forward and a backward pass take until the next may begin, by the
clock on the wall. There backward runs in a thread of autograd's own, which the time of the calling thread leaves out.
PYTHONPATH=python and HEADROOM_LIBRARY=build/release/libheadroom.so, or an installed wheel. Prints one JSON object.
"""

import argparse
import contextlib
import functools
import json
import statistics
import time

import torch
import torch.nn.functional as F

import gpu_headroom as hr
import gpu_headroom.torch as ht
from gpu_headroom.torch import calls, checks, direct


def host_us(call, device, repeats=30, times=300):
    """Microseconds of the calling thread's time for a call, the least of `repeats`: other programs on the machine do not count."""
    for _ in range(50):
        call()
    least = float("inf")
    for _ in range(repeats):
        if device == "cuda":
            torch.cuda.synchronize()
        start = time.thread_time_ns()
        for _ in range(times):
            call()
        least = min(least, (time.thread_time_ns() - start) / times / 1e3)
    return round(least, 2)


def overhead(device):
    if device == "cpu":
        torch.set_num_threads(1)  # all of a call happens in the thread that is timed
    q, k, v = (torch.randn(1, 1, 1 if device == "cpu" else 16, 64, device=device, dtype=torch.bfloat16) for _ in range(3))
    rows = {"device": device}
    for name, f in (("torch", lambda: F.scaled_dot_product_attention(q, k, v)), ("headroom", lambda: ht.attention(q, k, v))):
        with torch.no_grad():
            rows[f"{name}_forward_us"] = host_us(f, device)
    rows["library_forward_us"] = library_us(q, k, v, device)
    rows["above_the_library_us"] = round(rows["headroom_forward_us"] - rows["library_forward_us"], 2)
    q, k, v = (x.requires_grad_() for x in (q, k, v))
    up = torch.ones_like(q)
    for name, f in (("torch", F.scaled_dot_product_attention), ("headroom", ht.attention)):
        rows[f"{name}_forward_backward_us"] = host_us(lambda: torch.autograd.grad(f(q, k, v), [q, k, v], up), device)
    return rows


@torch.no_grad()
def over_caches(device):
    """Decoding one position of one sequence over a cache of 8."""
    from gpu_headroom.torch.flash_attn import flash_attn_with_kvcache
    from gpu_headroom.torch.flash_attn_3 import flash_attn_with_kvcache as third

    draw = functools.partial(torch.randn, device=device, dtype=torch.bfloat16)
    q, k, v, cos, sin = draw(1, 1, 1, 64), draw(1, 8, 1, 64), draw(1, 8, 1, 64), draw(16, 32), draw(16, 32)
    lengths, pages = torch.tensor([5], dtype=torch.int32, device=device), torch.zeros(1, 1, dtype=torch.int32, device=device)
    cases = {
        "attention_with_cache": lambda: ht.attention_with_cache(q, k, v, layout="blhd"),
        "with lengths": lambda: ht.attention_with_cache(q, k, v, lengths, layout="blhd"),
        "with lengths and pages": lambda: ht.attention_with_cache(q, k, v, lengths, pages, layout="blhd"),
    }
    for name, f in (("flash_attn", flash_attn_with_kvcache), ("flash_attn_3", third)):
        cases[name] = functools.partial(f, q, k, v, cache_seqlens=lengths, causal=True)
        cases[f"{name}, new keys"] = functools.partial(f, q, k, v, q, q, cache_seqlens=lengths, causal=True)
        cases[f"{name}, new keys turned"] = functools.partial(f, q, k, v, q, q, rotary_cos=cos, rotary_sin=sin, cache_seqlens=lengths, causal=True)
    return {"device": device, **{name: host_us(call, device) for name, call in cases.items()}}


def library_us(q, k, v, device):
    """The C call alone, its arguments ready."""
    call, ready, _ = direct.settled((q, k, v, *[None] * 5), checks.options_of(False, None, None, "top-left", "bhld", None, False, None))
    o, lse = call.run_forward(ready, q, k, v)
    held = call.lend(0)
    pointers = calls.pack[7](*[t.data_ptr() for t in (q, k, v, o, lse)], 0, 0 if held is None else held.data_ptr() + 255 & -256)
    stream = torch.cuda.current_stream().cuda_stream if device == "cuda" else None
    return host_us(lambda: call.run(ready.handle, pointers, 7, stream), device)


def queueing(rounds=40, times=20):
    """Microseconds of the wall clock to queue both passes of 16 heads, length 1024, dimension 64, causal: [least, median] of rounds in turns."""
    from torch.nn.attention import SDPBackend, sdpa_kernel

    from gpu_headroom.torch.flash_attn import flash_attn_func

    in_order = [torch.randn(1, 16, 1024, 64, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    projected = [x.detach().transpose(1, 2).contiguous().transpose(1, 2).requires_grad_() for x in in_order]  # as a model has them
    rows_first = [x.detach().transpose(1, 2).requires_grad_() for x in projected]

    def both(f, tensors, **options):
        up = torch.ones_like(tensors[0])
        return lambda: torch.autograd.grad(f(*tensors, **options), tensors, up)

    torchs, causal = F.scaled_dot_product_attention, {"is_causal": True}
    cases = {}
    for name, chosen in (("cudnn", "CUDNN_ATTENTION"), ("flash", "FLASH_ATTENTION"), ("efficient", "EFFICIENT_ATTENTION")):
        cases[f"torch, {name}"] = functools.partial(sdpa_kernel, getattr(SDPBackend, chosen)), both(torchs, in_order, **causal)
        cases[f"torch, {name}, projected"] = functools.partial(sdpa_kernel, getattr(SDPBackend, chosen)), both(torchs, projected, **causal)
    cases["attention"] = contextlib.nullcontext, both(ht.attention, in_order, **causal)
    cases["attention, projected"] = contextlib.nullcontext, both(ht.attention, projected, **causal)
    cases["flash_attn_func"] = contextlib.nullcontext, both(flash_attn_func, rows_first, causal=True)
    cases["replace_sdpa"] = ht.replace_sdpa, both(lambda *t, **o: F.scaled_dot_product_attention(*t, **o), in_order, **causal)
    cases["a product, for autograd's own"] = contextlib.nullcontext, both(lambda q, k, v: q * k + v, in_order)
    took = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (around, call) in cases.items():
            with around():
                for _ in range(3):
                    call()
                torch.cuda.synchronize()
                start = time.perf_counter_ns()
                for _ in range(times):
                    call()
                took[name].append((time.perf_counter_ns() - start) / times / 1e3)
    return {name: [round(min(x), 1), round(statistics.median(x), 1)] for name, x in took.items()}


def device_ms(call, times=20):
    for _ in range(5):
        call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda.synchronize()
    begin.record()
    for _ in range(times):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / times


def attention_times():
    rows = []
    for heads, length, dim, causal in ((16, 1024, 64, True), (16, 4096, 128, True), (16, 16384, 128, True), (16, 4096, 128, False)):
        q, k, v = (torch.randn(1, heads, length, dim, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3))
        up = torch.randn_like(q)
        row = {"heads": heads, "len": length, "dim": dim, "causal": causal}
        for _ in range(3):  # in turns; the last turn counts
            for name, f in (("torch", F.scaled_dot_product_attention), ("headroom", ht.attention)):
                row[f"{name}_forward_ms"] = device_ms(lambda: f(q, k, v, is_causal=causal))
                row[f"{name}_forward_backward_ms"] = device_ms(lambda: torch.autograd.grad(f(q, k, v, is_causal=causal), [q, k, v], up))
        rows.append(row)
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.parse_args()
    gpu = torch.cuda.is_available()
    out = {"torch": torch.__version__, "headroom": hr.version(), "machine": torch.cuda.get_device_name() if gpu else "cpu"}
    out["overhead"] = [overhead(d) for d in (["cpu", "cuda"] if gpu else ["cpu"])]
    out["over_caches_us"] = [over_caches(d) for d in (["cpu", "cuda"] if gpu else ["cpu"])]
    if gpu:
        out["queueing_us"] = queueing()
        out["attention"] = attention_times()
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
