"""What PyTorch's cudnn.benchmark takes, by shape: every plan that it makes (engine, knobs, workspace), what it allocated at most, what the second call
allocates (the workspace of the plan that is kept).

    g++ -std=c++20 -O2 -fPIC -shared -o libplans.so recorder.cpp -ldl
    python3 tried.py OUT --seconds 55 --workers 8 --first 0 --count 4000    on a card: OUT.csv, OUT.plans.csv.gz
"""
import argparse
import ctypes
import csv
import gzip
import os
import sys
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LIB = os.path.join(HERE, "libplans.so")
if LIB not in os.environ.get("LD_PRELOAD", ""):
    os.environ["LD_PRELOAD"] = ":".join([LIB, *filter(None, [os.environ.get("LD_PRELOAD")])])
    os.execv(sys.executable, [sys.executable, *sys.argv])

import processes
import shapes as draws

COLUMNS = ["shape", "pass", "peak_extra", "again_extra", "chosen", "plans", "ms", "why"]


def text(s):
    return " ".join("x".join(map(str, v)) if isinstance(v, tuple) else str(v) for v in s)


def short(plans):
    """By engine: the most workspace of those that could be made, and how many."""
    most = {}
    for p in plans:
        what, ws, rc, runs, run_rc, *_ = p.split(",")
        e = what.split("k")[0]
        if rc == "0":
            w, n = most.get(e, (0, 0))
            most[e] = max(w, int(ws)), n + 1
    return " ".join(f"{e}:{w}:{n}" for e, (w, n) in most.items())


def work(a, which, todo, until):
    import torch
    lib = ctypes.CDLL(LIB)
    lib.plans_text.restype = ctypes.c_char_p
    torch.backends.cudnn.benchmark = True
    dtypes = {"bf16": torch.bfloat16, "fp16": torch.float16, "fp32": torch.float32, "strict": torch.float32}
    rows, full = [], []
    for at, s in todo:
        if time.time() > until:
            break
        kind, layout, batch, c, k, f, st, p, d, g, n = s
        try:
            torch.backends.cudnn.allow_tf32 = kind != "strict"
            form = {} if layout == "plain" else {"memory_format": torch.channels_last if len(n) == 2 else torch.channels_last_3d}
            made = dict(device="cuda", dtype=dtypes[kind])
            x = torch.zeros(batch, c, *n, **made).to(**form)
            w = torch.zeros(k, c // g, *f, **made).to(**form)
            rest = (st, p, d, False, (0,) * len(n), g)
            torch.backends.cudnn.enabled = False
            out = [(m + 2 * q - e * (h - 1) - 1) // t + 1 for m, q, h, t, e in zip(n, p, f, st, d)]
            dy = torch.zeros(batch, k, *out, **made).to(**form)
            torch.backends.cudnn.enabled = True
        except Exception as e:
            rows.append([text(s), "", "", "", "", "", "", str(e).splitlines()[0][:80]])
            continue
        calls = {"forward": lambda: torch.ops.aten.cudnn_convolution(x, w, p, st, d, g, True, False, kind != "strict"),
                 "data": lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *rest, [True, False, False]),
                 "weight": lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *rest, [False, True, False])}
        if len(n) == 1:
            calls["forward"] = lambda: torch.ops.aten.convolution(x, w, None, *rest)
        for name, call in calls.items():
            row = dict.fromkeys(COLUMNS, "")
            row.update({"shape": text(s), "pass": name})
            try:
                torch.cuda.synchronize()
                lib.plans_begin()
                extra = []
                for i in range(2):
                    torch.cuda.reset_peak_memory_stats()
                    before, t = torch.cuda.memory_stats()["requested_bytes.all.current"], time.time()
                    y = call()
                    torch.cuda.synchronize()
                    stats = torch.cuda.memory_stats()
                    extra.append(stats["requested_bytes.all.peak"] - stats["requested_bytes.all.current"])
                    if i == 0:
                        row["ms"] = round(1e3 * (time.time() - t))
                        plans = lib.plans_text().decode().strip(";").split(";")
                    del y
                row["peak_extra"], row["again_extra"] = extra
                marked = [q for q in plans if q.endswith("*")]
                row["chosen"] = ",".join(marked[0].split(",")[:2]) if marked else ""
                row["plans"] = short([q for q in plans if q])
                full.append([text(s), name, ";".join(plans)])
            except Exception as e:
                row["why"] = (str(e).splitlines() or ["?"])[0][:80].replace(",", ";")
            rows.append([row[c] for c in COLUMNS])
        del x, w, dy
        if at % 8 == 0:
            torch.cuda.empty_cache()
    with open(f"{a.out}.{which}.part", "w", newline="") as t:
        csv.writer(t).writerows(rows)
    with open(f"{a.out}.{which}.full", "w", newline="") as t:
        csv.writer(t).writerows(full)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--seconds", type=float, default=55)
    p.add_argument("--workers", type=int, default=8)
    p.add_argument("--first", type=int, default=0)
    p.add_argument("--count", type=int, default=4000)
    p.add_argument("--seed", type=int, default=1130)
    a = p.parse_args()
    until = time.time() + a.seconds
    todo = list(enumerate(draws.shapes(a.first + a.count, a.seed)))[a.first:]
    if a.workers == 1:
        work(a, 0, todo, until)
    else:
        processes.run(lambda i: work(a, i, todo[i::a.workers], until), a.workers, until, beyond=12)
    for end, name, opener in ("part", f"{a.out}.csv", open), ("full", f"{a.out}.plans.csv.gz", gzip.open):
        with opener(name, "wt", newline="") as t:
            t.write(",".join(COLUMNS if end == "part" else ["shape", "pass", "plans"]) + "\r\n")
            for i in range(a.workers):
                part = f"{a.out}.{i}.{end}"
                if os.path.exists(part):
                    with open(part) as q:
                        t.write(q.read())
                    os.remove(part)


main()
