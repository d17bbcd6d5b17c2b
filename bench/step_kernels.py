#!/usr/bin/env python3
"""The kernels of random settings of our own training step, op by op, and how far the forecast of each op is off: where a wrong time comes from.

  bench/step_kernels.py measure kernels.csv --settings said.csv     on a card: each setting's step, and its kernels by `headroom profile step`
  bench/step_kernels.py table kernels.csv --device h100             anywhere: ops against their forecasts by this build, worst first

`said.csv` is of `bench/random_steps.py forecast`. A line of kernels.csv is a setting (options, config, ms of a step) or an op of the setting above
it: its launches in a step, and microseconds of all of them. `table` adds up, by op and precision, the error of the op as a share of its step.
"""
import argparse
import collections
import csv
import math
import shlex
import statistics
import time

import random_steps

HOST_COPIES = ("to_host", "from_host")  # beside the step: not in the forecasts of its ops
COLUMNS = ["op", "launches", "us", "options", "config", "ms"]


def kernels_of(program, options, config):
    """[op, launches, us] of the last profiled step, or why there is none."""
    record, why = program.record(["profile", "step", "--device", "cuda", "--warmup", "2", "--steps", "3"], options, config)
    if not record:
        return [], why
    last = max(s["step"] for s in record["timeline"])
    ops = collections.OrderedDict()
    for s in record["timeline"]:
        if s["step"] == last:
            of = ops.setdefault(s["op"] or "", [0, 0.0])
            of[0] += 1
            of[1] += s["ms"] * 1e3
    return [[op, n, f"{us:.3g}"] for op, (n, us) in ops.items() if op], ""


def measure(a):
    program, began = random_steps.Program(a.program), time.monotonic()
    with open(a.file, "w", newline="") as f:
        out = csv.writer(f)
        out.writerow(COLUMNS)
        for row in random_steps.rows_of(a.settings):
            options, config = shlex.split(row["options"]), random_steps.config_in(row)
            if time.monotonic() - began > a.seconds:
                break
            step, line = random_steps.measured(program, options, config, "cuda", None)
            ops, why = kernels_of(program, options, config)
            print(f"{time.monotonic() - began:6.1f} s  {line} {len(ops)} ops {why}", flush=True)
            if step["ms"] and ops:
                out.writerow(["", "", "", row["options"], row["config"], f"{step['ms']:.5g}"])
                out.writerows(ops)
                f.flush()


def table(a):
    program, by, settings = random_steps.Program(a.program), collections.defaultdict(list), []
    for row in random_steps.rows_of(a.file):
        if row["options"]:
            dry, _ = program.forecast(shlex.split(row["options"]), random_steps.config_in(row), a.device)
            step_us, expected = float(row["ms"]) * 1e3, collections.Counter()
            for op in dry["time"] if dry else []:
                expected[op["op"]] += (op["ms"] or 0) * 1e3
            if dry and dry["ms"]:
                settings.append(dry["ms"] * 1e3 / step_us - 1)
        elif dry and row["op"] in expected and row["op"] not in HOST_COPIES:
            by[row["op"], dry["precision"]].append((expected[row["op"]], float(row["us"]), step_us))
    print("op,precision,settings,share_of_step_off,forecast_over_measured,rms_log_ratio")
    off = {key: sum(abs(f - m) / step for f, m, step in rows) / len(settings) for key, rows in by.items()}
    for key in sorted(off, key=off.get, reverse=True)[: a.most]:
        logs = [math.log(f / m) for f, m, _ in by[key] if f > 0 and m > 0]
        mean = math.exp(statistics.mean(logs)) if logs else 0
        print(f"{key[0]},{key[1]},{len(by[key])},{off[key]:.4f},{mean:.3f},{math.sqrt(statistics.mean(x * x for x in logs)) if logs else 0:.3f}")
    sizes = [abs(e) for e in settings]
    print(f"# {len(sizes)} settings: median error of the step {statistics.median(sizes):.1%}, {sum(e <= 0.06 for e in sizes) / len(sizes):.0%} within 6 %")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["measure", "table"])
    p.add_argument("file")
    p.add_argument("--settings", default="", help="measure: what bench/random_steps.py forecast wrote")
    p.add_argument("--seconds", type=float, default=1e9, help="measure: begin no setting after so long")
    p.add_argument("--device", default="h200", help="table: whose forecasts")
    p.add_argument("--most", type=int, default=30, help="table: rows")
    p.add_argument("--program", default=random_steps.PROGRAM)
    a = p.parse_args()
    {"measure": measure, "table": table}[a.what](a)


if __name__ == "__main__":
    main()
