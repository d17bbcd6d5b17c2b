#!/usr/bin/env python3
"""Attention on the GPU: ours and PyTorch's (cuDNN, flash) alternately, on one card, in one run; one line per cell.

    cmake --build --preset release --target headroom_variants
    python3 bench/peers/attention_gpu.py build/release/libheadroom_variants.so [--out FILE.csv] [--set table|one-head|batch1]

Every measurement is a CUDA graph of eight calls, so no launch path is in any number; the candidates take turns, the median of the
rounds counts. `ratio` is the best peer's time over ours: above 1 we are ahead. Random data. Our output is checked against PyTorch's.
"""

import argparse
import csv
import ctypes as c
import statistics

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as sdpa

CALLS, ROUNDS = 8, 7
DTYPES = {torch.bfloat16: 0, torch.float16: 1, torch.float32: 2}
PEERS = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}


class Asked(c.Structure):
    _fields_ = [("variant", c.c_char_p), ("dtype", c.c_int32), ("mask", c.c_int32)] + [
        (name, c.c_int64) for name in ("batch", "heads", "kv_heads", "len_q", "len_k", "dim")
    ]


class Pointers(c.Structure):
    _fields_ = [(name, c.c_void_p) for name in "q k v o lse d_o dq dk dv workspace saved stream".split()] + [
        ("workspace_bytes", c.c_int64), ("saved_bytes", c.c_int64)
    ]  # fmt: skip


class Ours:
    """One variant on one problem. Holds its memory; called, it puts one pass on the current stream."""

    def __init__(self, library, variant, t, causal, which, tf32=False):
        self.library, self.which, self.t = library, which, t
        batch, len_q, heads, dim = t["q"].shape
        self.asked = Asked(variant.encode(), 3 if tf32 else DTYPES[t["q"].dtype], int(causal), batch, heads, t["k"].shape[2], len_q, t["k"].shape[1], dim)
        workspace, saved = c.c_int64(), c.c_int64()
        if library.variant_needs(c.byref(self.asked), which, c.byref(workspace), c.byref(saved)):
            raise RuntimeError(library.variant_error().decode())
        self.memory = [torch.empty(n.value + 256, dtype=torch.uint8, device="cuda") for n in (workspace, saved)]
        self.pointers = Pointers(
            **{name: x.data_ptr() for name, x in t.items()}, workspace=self.memory[0].data_ptr(), saved=self.memory[1].data_ptr(),
            workspace_bytes=workspace.value, saved_bytes=saved.value,
        )  # fmt: skip

    def __call__(self):
        self.pointers.stream = torch.cuda.current_stream().cuda_stream
        if self.library.variant_run(c.byref(self.asked), self.which, c.byref(self.pointers)):
            raise RuntimeError(self.library.variant_error().decode())


def recorded(call):
    call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph, call  # the graph knows only addresses: what it uses lives in the call


def alternate(graphs):
    """Median milliseconds per call of each, taking turns; the first round warms up."""
    start, stop = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = {name: [] for name in graphs}
    for turn in range(ROUNDS + 1):
        for name, (graph, _) in graphs.items():
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            if turn:
                times[name].append(start.elapsed_time(stop) / CALLS)
    return {name: statistics.median(t) for name, t in times.items()}


def peer(backend, t, causal):
    q, k, v = (t[name].transpose(1, 2) for name in "qkv")

    def call():
        with sdpa_kernel(backend):
            return sdpa(q, k, v, is_causal=causal)

    return call


def cells(which):
    if which == "table":  # 16 384 tokens, width 2048
        return [(16384 // n, 2048 // d, n, d, causal) for d in (64, 128, 256) for causal in (False, True) for n in (512, 1024, 2048, 4096, 8192, 16384)]
    if which == "batch1":
        return [(1, 16, 16384, 64, True)]
    return [(1, 1, n, d, False) for d in (16, 32, 64, 128) for n in (128, 512, 2048, 8192, 16384, 65536)]


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("library")
    options.add_argument("--set", default="table", choices=("table", "one-head", "batch1"))
    options.add_argument("--variant", default="flash_sm90")
    options.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16"))
    options.add_argument("--peers", default="cudnn,flash")
    options.add_argument("--out")
    a = options.parse_args()
    library = c.CDLL(a.library)
    library.variant_error.restype = c.c_char_p
    print(f"# {torch.cuda.get_device_name()} · PyTorch {torch.__version__} · cuDNN {torch.backends.cudnn.version()} · {a.variant} {a.dtype} forward")
    rows = []
    for batch, heads, length, dim, causal in cells(a.set):
        make = lambda *shape: torch.randn(*shape, device="cuda", dtype=getattr(torch, a.dtype))  # noqa: E731
        t = {name: make(batch, length, heads, dim) for name in "qkvo"}
        t["lse"] = torch.empty(batch, heads, length, device="cuda")
        row = {"dim": dim, "causal": int(causal), "batch": batch, "heads": heads, "len": length}
        graphs = {"ours": recorded(Ours(library, a.variant, t, causal, 0))}
        for name in filter(None, a.peers.split(",")):
            try:
                call = peer(PEERS[name], t, causal)
                right = call().transpose(1, 2).float()
                row["error"] = f"{((t['o'].float() - right).norm() / right.norm()).item():.1e}"
                graphs[name] = recorded(call)
            except RuntimeError as e:
                row[f"{name}_why"] = str(e).splitlines()[0][:60]
        ms = alternate(graphs)
        flops = 4 * batch * heads * length * length * dim / (2 if causal else 1)
        best = min((ms[name] for name in ms if name != "ours"), default=ms["ours"])
        row |= {f"{name}_ms": f"{x:.4f}" for name, x in ms.items()} | {"ours_tflops": f"{flops / ms['ours'] * 1e-9:.0f}", "ratio": f"{best / ms['ours']:.3f}"}
        rows.append(row)
        print("  ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        del graphs, t
    ratios = [float(row["ratio"]) for row in rows]
    print(f"# geometric mean of the ratios {statistics.geometric_mean(ratios):.3f}, lowest {min(ratios):.3f}")
    if a.out:
        with open(a.out, "w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)))
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
