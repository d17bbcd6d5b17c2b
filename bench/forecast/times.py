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
import os
import sys
import tempfile
import time
import traceback

import card_forks
from cases import cases_of
from host_speed import host_us

HERE = os.path.dirname(os.path.abspath(__file__))
BEGIN = time.perf_counter()


def spent():
    return time.perf_counter() - BEGIN


class HostTable:
    def __init__(self, folder):
        self.file = open(os.path.join(folder, "host.csv"), "w", newline="")
        self.table = csv.writer(self.file)
        self.table.writerow("name us median_us calls".split())

    def write(self, name, us, median, n):
        self.table.writerow([name, f"{us:.4f}", f"{median:.4f}", n])
        self.file.flush()

    def write_speed(self, name):
        self.write(name, host_us(), 0, 20_000)

    def write_machine(self):
        name = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
        self.write("processor: " + name.replace(",", " ") + f"; python {sys.version.split()[0]}", 0, 0, os.cpu_count())


def row_of(program, a):
    """Measured in a fork; a compiled program gets empty caches and more time."""
    compiles = "compile" in program
    if spent() > a.seconds - (45 if compiles else 12):
        return {"program": program, "status": "no time"}
    environment = {"HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}
    if compiles:
        fresh = tempfile.mkdtemp()
        environment.update(TORCHINDUCTOR_CACHE_DIR=fresh + "/inductor", TRITON_CACHE_DIR=fresh + "/triton")

    def work():
        from program_steps import measured
        print(f"==== {program}", flush=True)
        return measured(program, a.each, None if a.no_trace else os.path.join(a.folder, "kernels.csv.gz"))

    most = min(120 if compiles else 45, a.seconds - spent() + 10)
    row = card_forks.result_of(work, os.path.join(a.folder, "log.txt"), most, environment)
    return row or {"program": program, "status": "failed", "why": f"nothing within {most:.0f} s, or it crashed"}


def steps(a):
    from program_steps import COLUMNS
    print(f"imported: {spent():.1f} s", flush=True)
    with open(os.path.join(a.folder, "programs.csv"), "w", newline="") as f:
        table = csv.DictWriter(f, COLUMNS)
        table.writeheader()
        for program in programs_of(a.programs):
            row = row_of(program, a)
            table.writerow(row)
            f.flush()
            print(f"{spent():6.1f} s  {program}: {row['status']} {row.get('ms', '')} ms, host {row.get('host_ms', '')}, busy {row.get('busy_ms', '')} "
                  f"{row.get('why', '')}", flush=True)


def programs_of(words):
    each = [w.strip() for w in words.split(";") if w.strip()]
    return [program for one in each for program in (cases_of(one) if one.endswith(".txt") else [one])]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder", type=os.path.abspath)
    p.add_argument("--seconds", type=float, default=420, help="for all of it; a program that would begin too late is left out")
    p.add_argument("--each", type=float, default=6, help="seconds after which a program measures no further window")
    p.add_argument("--only", default="steps,host", help="of host, steps, speed")
    p.add_argument("--programs", default=os.path.join(HERE, "times.txt"), help="programs, or .txt files with one on each line; a semicolon between two")
    p.add_argument("--no-trace", action="store_true", help="of no step its kernels: two seconds less for each program")
    p.add_argument("--cores", type=int, default=8, help="that a program may use: it is bound to the first of those that are allowed")
    a = p.parse_args()
    os.makedirs(a.folder, exist_ok=True)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, cores[:a.cores])
    os.environ.setdefault("OMP_NUM_THREADS", str(min(a.cores, len(cores))))
    out = HostTable(a.folder)
    out.write_machine()
    out.write_speed("python_work")
    for part in a.only.split(","):
        began = spent()
        try:
            if part == "host":
                import host_calls
                host_calls.measure(out.write)
            elif part == "steps":
                card_forks.prepared(lambda: steps(a))
        except Exception:
            traceback.print_exc()
        print(f"{part}: {spent() - began:.1f} s", flush=True)
    out.write_speed("python_work, at the end")


if __name__ == "__main__":
    main()
