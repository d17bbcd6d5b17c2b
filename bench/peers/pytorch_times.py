#!/usr/bin/env python3
"""Times of PyTorch's steps by description (`headroom memory model --as pytorch`), held against what bench/peers/pytorch_steps.py --times measured.

  bench/peers/pytorch_times.py forecast said.csv SETTING...        anywhere, before a card is there; a SETTING as pytorch_steps.py takes it, or a file of them
  bench/peers/pytorch_times.py table measured.csv said.csv         the one against the other; of ranks the slowest counts
"""
import csv
import json
import os
import statistics
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from pytorch_steps import SHAPES, setting_of  # noqa: E402

PROGRAM = os.environ.get("HEADROOM", os.path.join(HERE, "..", "..", "build", "release", "headroom"))
COLUMNS = ["setting", "device", "ms", "ms_low", "ms_high", "ms_by"]


def options_of(words):
    s = setting_of(words)
    vocab, width, ffn, layers, heads, kv_heads = SHAPES[s.model]
    out = ["--model", s.model if s.model in ("small", "medium", "large", "xl", "2.7B") else "small", "--layers", s.layers or layers]
    if s.model in ("narrow", "grouped", "wide"):
        out += ["--width", width, "--ffn", ffn, "--heads", heads, "--kv-heads", kv_heads, "--vocab", vocab]
    out += ["--batch", s.batch, "--len", s.len, "--precision", s.precision, "--attention", "plain" if s.attention == "naive" else "flash",
            "--keep", s.keep, "--adam", s.adam, "--compile", s.compile, "--parameters", {"whole": "whole", "half": "half"}[s.parameters],
            "--accumulate", s.accumulate]
    if s.lora:
        out += ["--lora", s.lora]
    if s.gpus > 1:
        out += ["--gpus", s.gpus, "--shard", s.shard]
    return [str(o) for o in out]


def forecast(path, settings):
    with open(path, "w", newline="") as f:
        out = csv.DictWriter(f, COLUMNS)
        out.writeheader()
        for device in ("h200", "h100"):
            for words in settings:
                p = subprocess.run([PROGRAM, "memory", "model", "--as", "pytorch", "--device", device, *options_of(words), "--format", "json"],
                                   capture_output=True, text=True)
                try:
                    row = json.loads(p.stdout)["rows"][0]
                except (ValueError, KeyError):
                    row = {"ms_by": (p.stderr.strip() or "?").splitlines()[-1]}
                out.writerow({"setting": words, "device": device, **{c: row.get(c) or "" for c in COLUMNS[2:]}})


def words_of(row):
    """The words of a setting that pytorch_steps.py's row has, without those that are its defaults."""
    usual = vars(setting_of(""))
    return {k: row[k] for k in usual if str(usual[k]) != row[k]}


def table(measured, said):
    with open(said, newline="") as f:
        known = [(vars(setting_of(r["setting"])), r) for r in csv.DictReader(f)]
    slowest = {}
    with open(measured, newline="") as f:
        for row in csv.DictReader(f):
            if row["status"] == "ok" and row.get("ms"):
                key = json.dumps(words_of(row), sort_keys=True)
                if key not in slowest or float(row["ms"]) > float(slowest[key]["ms"]):
                    slowest[key] = row
    out, errors = csv.writer(sys.stdout), []
    out.writerow(["setting", "measured_ms", "forecast_ms", "ms_low", "ms_high", "error", "inside"])
    for row in slowest.values():
        device = "h200" if "H200" in row["device"] else "h100"
        for fields, r in known:
            if r["device"] != device or not r["ms"] or any(str(v) != row[k] for k, v in fields.items()):
                continue
            ms, expected, low, high = float(row["ms"]), *(float(r[c]) for c in ("ms", "ms_low", "ms_high"))
            errors.append((expected / ms - 1, low <= ms <= high, (high - low) / 2 / expected))
            out.writerow([r["setting"], f"{ms:.4g}", f"{expected:.4g}", f"{low:.4g}", f"{high:.4g}", f"{expected / ms - 1:+.3f}",
                          "yes" if low <= ms <= high else "no"])
    if errors:
        print(f"# {len(errors)} settings: median error {statistics.median(abs(e) for e, _, _ in errors):.1%}, worst "
              f"{max((e for e, _, _ in errors), key=abs):+.0%}, {sum(i for _, i, _ in errors)} inside, on average ± "
              f"{statistics.mean(w for _, _, w in errors):.0%}")


def main():
    if len(sys.argv) < 4 or sys.argv[1] not in ("forecast", "table"):
        sys.exit(__doc__)
    if sys.argv[1] == "table":
        return table(sys.argv[2], sys.argv[3])
    settings = []
    for word in sys.argv[3:]:
        settings += open(word).read().split() if os.path.exists(word) else [word]
    forecast(sys.argv[2], settings)


if __name__ == "__main__":
    main()
