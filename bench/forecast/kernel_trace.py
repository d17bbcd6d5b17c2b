"""The kernels and copies of a stretch of a program, as torch.profiler records them."""
import csv
import gzip
import json
import os
import tempfile


def events_of(profiler):
    """In the order of their beginnings."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "trace.json")
        profiler.export_chrome_trace(path)
        with open(path) as f:
            events = json.load(f)["traceEvents"]
    return sorted((e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")), key=lambda e: e["ts"])


def append(path, program, events):
    """A line of each: program, begin in us, us, stream, grid, block, bytes, name."""
    with gzip.open(path, "at", newline="") as f:
        table = csv.writer(f)
        for e in events:
            a = e.get("args", {})
            table.writerow([program, f"{e['ts']:.2f}", f"{e['dur']:.3f}", a.get("stream", ""), "x".join(map(str, a.get("grid", []))),
                            "x".join(map(str, a.get("block", []))), a.get("bytes", ""), e["name"][:300]])


def summary(events):
    """How many, how long together, and how long at least one ran."""
    busy, at = 0.0, 0.0
    for e in events:
        begin, end = max(at, e["ts"]), e["ts"] + e["dur"]
        busy += max(0.0, end - begin)
        at = max(at, end)
    return {"kernels": len(events), "kernel_ms": f"{sum(e['dur'] for e in events) / 1e3:.4f}", "busy_ms": f"{busy / 1e3:.4f}"}
