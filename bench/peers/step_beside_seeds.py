#!/usr/bin/env python3
"""Rows of `headroom step --format csv` beside the timings of the seeds (shared/seeds/lm_timings.csv), as a Markdown table.

The seeds time PyTorch eager on a card of their time: forward and backward apart, and for bf16 the whole step. Here backward is a row of
forward + backward less a row of forward. Sections of the seeds that time the same step are one row, with the least and the most of them.

    python3 bench/peers/step_beside_seeds.py bench/results/h200_step_seeds_2026-11-21.csv shared/seeds/lm_timings.csv
"""
import csv
import sys


def read(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(f))


def ours_by_step(rows):
    return {(r["model"], int(r["len"]), r["precision"], r["phase"]): r for r in rows if r["status"] == "ok"}


def words(low, high):
    return f"{low:.1f}" if high - low < 0.05 else f"{low:.1f} – {high:.1f}"


def main():
    ours, seeds = ours_by_step(read(sys.argv[1])), read(sys.argv[2])
    theirs = {}
    for s in seeds:
        key = (s["model"], int(s["seq_len"]), s["precision"])
        if s["kind"] == "train_step":
            theirs.setdefault((*key, "train"), []).append(1e3 * float(s["first_s"]))
        else:
            theirs.setdefault((*key, "forward"), []).append(1e3 * float(s["first_s"]))
            theirs.setdefault((*key, "backward"), []).append(1e3 * float(s["backward_s"]))
    print("| model | len | precision | phase | the seeds' ms | ms here | times as fast |")
    print("|---|---|---|---|---|---|---|")
    for (model, length, precision, phase), times in theirs.items():
        def of(what):
            row = ours.get((model, length, precision, what))
            return float(row["ms"]) if row else None
        both, forward = of("forward+backward"), of("forward")
        ms = both - forward if phase == "backward" and both and forward else of(phase)
        low, high = min(times), max(times)
        print(f"| {model} | {length} | {precision} | {phase} | {words(low, high)} | {f'{ms:.2f}' if ms else '–'} | "
              f"{words(low / ms, high / ms) if ms else '–'} |")


if __name__ == "__main__":
    main()
