#!/usr/bin/env python3
"""Random settings of our own training step: what each takes on a card, what is forecast of it, and whether that lies inside the interval.

  bench/random_steps.py forecast said.csv --count 40 --seed 1     anywhere, before a card is there: settings and what is forecast of each
  bench/random_steps.py measure steps.csv --settings said.csv     on a card; every setting is one line, kept as it comes; ends with the table
  bench/random_steps.py measure steps.csv --settings said.csv --cards 2   the same on two: side by side what one card takes, then what both take
  bench/random_steps.py measure steps.csv --count 40 --seed 1     the same without forecasts made before
  bench/random_steps.py table steps.csv --device h100             anywhere: forecasts of the same settings by this build
  bench/random_steps.py table steps.csv --settings said.csv       those that were made before

With `forecast --cards 2` every third setting shares its step out over two cards. `--device` takes a card's own file, too (headroom device --efficiencies --save FILE).
Settings: models of five families, narrow and wide; every precision, keep level, lever of the update, and phase. They depend on --seed alone. The
program is build/release/headroom, or what --program names. `table` ends with the median error, the share within 6 %, and those outside.
"""
import argparse
import csv
import json
import os
import random
import shlex
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PROGRAM = os.path.join(ROOT, "build", "release", "headroom")
SAID = ["options", "config", "forecast_ms", "ms_low", "ms_high", "ms_by"]
COLUMNS = ["options", "config", "precision", "ms", "ms_std", "steps", "status", "why"]


def config_of(family, r):
    """A small config.json of a family whose step differs from Llama's: norms, activations, biases, caps."""
    heads, dim, layers = r.choice([4, 8, 12, 16]), r.choice([64, 128]), r.choice([2, 4, 8])
    width, vocab = heads * dim, r.choice([8192, 32000, 50304])
    common = {"vocab_size": vocab, "hidden_size": width, "num_hidden_layers": layers, "num_attention_heads": heads, "head_dim": dim,
              "num_key_value_heads": r.choice([heads, heads // 4]), "intermediate_size": r.choice([3, 4]) * width,
              "max_position_embeddings": 8192, "rope_theta": 10000.0, "rms_norm_eps": 1e-6, "attention_bias": False}
    if family == "gpt2":
        return {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "vocab_size": vocab, "n_positions": 8192, "n_ctx": 8192, "n_embd": width,
                "n_layer": layers, "n_head": heads, "n_inner": None, "activation_function": "gelu_new", "layer_norm_epsilon": 1e-5}
    if family == "gemma2":
        return {**common, "architectures": ["Gemma2ForCausalLM"], "model_type": "gemma2", "hidden_activation": "gelu_pytorch_tanh",
                "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0, "query_pre_attn_scalar": dim, "sliding_window": 4096,
                "tie_word_embeddings": True}
    if family == "olmo2":
        return {**common, "architectures": ["Olmo2ForCausalLM"], "model_type": "olmo2", "hidden_act": "silu", "tie_word_embeddings": False}
    return {**common, "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_act": "silu", "tie_word_embeddings": True,
            "sliding_window": None, "use_sliding_window": False}


def shared_out(r, options):
    """The options, of which every third setting runs on two cards: as replicas, sharded, or with the tokens of a sequence shared out."""
    if r.random() >= 0.33:
        return options
    options = options + ["--gpus", "2", "--shard", r.choice(["none", "optimizer", "gradients", "everything"])]
    return options + (["--split-tokens"] if r.random() < 0.35 else [])


def cards_of(options):
    return int(options[options.index("--gpus") + 1]) if "--gpus" in options else 1


def one(r):
    """The options of a setting, and its config.json, or nothing. Not every one is allowed: the dry run says which."""
    family = r.choices(["llama", "preset", "gpt2", "gemma2", "olmo2", "qwen3"], [8, 4, 2, 2, 2, 2])[0]
    precision = r.choices(["bf16", "fp8", "fp32", "tf32", "fp16"], [9, 4, 3, 2, 2])[0]
    options, config = [], None
    if family == "preset":
        options += ["--model", r.choice(["small", "medium", "large", "xl", "2.7B"])]
    elif family == "llama":
        heads, dim = r.choice([2, 4, 8, 16, 25, 32]), r.choice([64, 64, 80, 128])
        options += ["--model", "small", "--heads", heads, "--width", heads * dim, "--layers", r.choice([1, 2, 4, 6]), "--ffn",
                    max(256, int(heads * dim * r.choice([2, 2.75, 4])) // 64 * 64), "--vocab", r.choice([1000, 10000, 32000, 50304, 128256])]
        if heads % 4 == 0 and r.random() < 0.4:
            options += ["--kv-heads", heads // 4]
    else:
        config = config_of(family, r)
    options += ["--batch", r.choice([1, 2, 3, 4, 8]), "--len", r.choice([64, 128, 200, 512, 1000, 1024, 2048, 4096]), "--precision", precision]
    phase = r.choices(["train", "forward", "forward+backward"], [8, 1, 1])[0]
    options += ["--phase", phase]
    if precision == "fp8":
        options += ["--scales", r.choice(["tensor", "row", "block"])]
    if phase != "forward":
        options += ["--keep", r.choices(["everything", "no-product", "no-cheap", "no-attention-inputs", "input", "groups", "host"],
                                        [8, 2, 2, 2, 3, 1, 1])[0]]
    if phase == "train":
        if precision in ("bf16", "fp8") and r.random() < 0.5:
            options += ["--masters", "halves"]
        if precision in ("bf16", "fp8") and r.random() < 0.5:
            options += ["--gradients", r.choice(["half", "none"])]
        if "none" in options or r.random() < 0.4:
            options += ["--update", "during"]
        if r.random() < 0.4:
            options += ["--moments", r.choice(["half", "8bit"])]
    if precision != "fp32" and precision != "tf32" and r.random() < 0.3:
        options += ["--logits", "half"]
    return [str(o) for o in options], config


class Program:
    def __init__(self, path):
        self.path, self.folder = path, tempfile.mkdtemp()

    def record(self, words, options, config, limit=120, environment=None):
        """What a command says in JSON, or the line that says why there is nothing."""
        named = []
        if config:
            folder = os.path.join(self.folder, str(abs(hash(json.dumps(config, sort_keys=True)))))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "config.json"), "w") as f:
                json.dump(config, f)
            named = ["--model", folder]
        try:
            p = subprocess.run([self.path, *words, *named, *options, "--format", "json"], capture_output=True, text=True, timeout=limit,
                               env={**os.environ, **(environment or {})})
        except subprocess.TimeoutExpired:
            return None, "took too long"
        try:
            return json.loads(p.stdout), ""
        except ValueError:
            return None, (p.stderr.strip() or f"exit code {p.returncode}").splitlines()[-1][:200]

    def rows(self, words, options, config, limit=120, environment=None):
        """The rows of a command in JSON, or the line that says why there are none."""
        record, why = self.record(words, options, config, limit, environment)
        return (record["rows"], "") if record and "rows" in record else ([], why)

    def forecast(self, options, config, device):
        """The dry run's row, or why there is none."""
        rows, why = self.rows(["memory", "model", "--device", device], options, config)
        return (rows[0], "") if rows else (None, why)


def seconds_of(row, precision):
    return row["flops"] / {"fp32": 40e12, "tf32": 250e12}.get(precision, 400e12)


def settings(program, count, seed, most_bytes, device, cards):
    r, seen = random.Random(seed), set()
    while count > 0:
        options, config = one(r)
        if cards > 1:
            options = shared_out(r, options)
        key = json.dumps([options, config])
        if key in seen:
            continue
        seen.add(key)
        row, _ = program.forecast(options, config, device)
        if row is None or row["needed_bytes"] > most_bytes or seconds_of(row, row["precision"]) > 0.4:
            continue
        count -= 1
        yield options, config


def rows_of(path):
    with open(path, newline="") as f:
        return list(csv.DictReader(line for line in f if not line.startswith("#")))


def config_in(row):
    return json.loads(row["config"]) if row["config"] else None


def said_of(row):
    """The columns of SAID of a dry run's row."""
    return {"forecast_ms": row["ms"] or "", "ms_low": row["ms_low"] or "", "ms_high": row["ms_high"] or "", "ms_by": row.get("ms_by") or ""}


def forecast(a):
    program = Program(a.program)
    commit = subprocess.run(["git", "-C", ROOT, "log", "-1", "--format=%s"], capture_output=True, text=True).stdout.strip()
    with open(a.file, "w", newline="") as f:
        f.write(f"# bench/random_steps.py forecast --count {a.count} --seed {a.seed} --device {os.path.basename(a.device)}, after \"{commit}\"\n")
        out = csv.DictWriter(f, SAID)
        out.writeheader()
        for options, config in settings(program, a.count, a.seed, a.gib << 30, a.device, a.cards):
            row, _ = program.forecast(options, config, a.device)
            out.writerow({"options": shlex.join(options), "config": json.dumps(config) if config else "", **said_of(row)})


def measured(program, options, config, on, card):
    """A row of COLUMNS: what a setting takes on this card, or on all where it is none, and a line about it."""
    until = ["--steps", "20", "--seconds", "0.4"] if cards_of(options) == 1 else ["--steps", "12"]  # ranks take the same number of steps
    words = ["step", "--device", on, "--warmup", "2", *until, "--db", os.path.join(program.folder, f"r{card}.db")]
    rows, why = program.rows(words, options, config, 60, {} if card is None else {"CUDA_VISIBLE_DEVICES": str(card)})
    row = rows[0] if rows else {"status": "failed", "why": why}
    said = f"forecast {row['forecast_ms']:.4g} ({row['forecast_ms_low']:.4g} to {row['forecast_ms_high']:.4g})" if row.get("forecast_ms") else ""
    line = f"{row.get('ms')} ms {said} {row['status']}  {shlex.join(options)} {config['model_type'] if config else ''}"
    return {"options": shlex.join(options), "config": json.dumps(config) if config else "", "precision": options[options.index("--precision") + 1],
            **{c: row.get(c, "") for c in ("ms", "ms_std", "steps", "status", "why")}}, line


def measure(a):
    program, began = Program(a.program), time.monotonic()
    try:
        card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        card = ""
    asked = f"--settings {os.path.basename(a.settings)}" if a.settings else f"--count {a.count} --seed {a.seed}"
    chosen = [(shlex.split(r["options"]), config_in(r)) for r in rows_of(a.settings)] if a.settings else \
        settings(program, a.count, a.seed, a.gib << 30, a.device, a.cards)
    with open(a.file, "w", newline="") as f:
        f.write(f"# bench/random_steps.py measure {asked}, on {(card.strip() or 'no GPU').splitlines()[0]}, {a.cards} at a time\n")
        out, lock = csv.DictWriter(f, COLUMNS), threading.Lock()
        out.writeheader()

        def take(waiting, on):
            while True:
                with lock:
                    if not waiting or time.monotonic() - began > a.seconds:
                        return
                    options, config = waiting.pop(0)
                row, line = measured(program, options, config, a.on, on)
                with lock:
                    out.writerow(row)
                    f.flush()
                    print(f"{time.monotonic() - began:6.1f} s  {line}", flush=True)

        chosen = list(chosen)
        alone = [c for c in chosen if cards_of(c[0]) == 1 and not a.only_shared]
        workers = [threading.Thread(target=take, args=(alone, i if a.cards > 1 else None)) for i in range(a.cards)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        together = [c for c in chosen if 1 < cards_of(c[0]) <= a.cards]
        take(together, None)
        left = len(alone) + len(together)
        if left:
            print(f"the time is over: {a.seconds} s; {left} settings were not measured", file=sys.stderr)
    if a.settings:
        table(a)


def named(config):
    if not config:
        return ""
    return f"{config['model_type']} {config.get('num_hidden_layers', config.get('n_layer'))} x {config.get('hidden_size', config.get('n_embd'))}"


def summary(name, rows):
    """A line of errors of rows of (error, inside, half width), where there are any."""
    if not rows:
        return
    sizes = [abs(e) for e, _, _ in rows]
    worst = max((e for e, _, _ in rows), key=abs)
    print(f"# {name}: {len(rows)} settings: median error {statistics.median(sizes):.1%}, worst {worst:+.1%}, "
          f"{sum(e <= 0.06 for e in sizes) / len(sizes):.0%} within 6 %; {sum(i for _, i, _ in rows)} inside their intervals, "
          f"on average ± {statistics.mean(w for _, _, w in rows):.1%}")


def table(a):
    program, errors, outside, none = Program(a.program), {}, [], []
    before = {(r["options"], r["config"]): r for r in rows_of(a.settings)} if a.settings else {}
    out = csv.writer(sys.stdout)
    out.writerow(["measured_ms", "forecast_ms", "ms_low", "ms_high", "error", "inside", "model", "options"])
    for row in rows_of(a.file):
        if row["status"] != "ok" or not row["ms"]:
            continue
        config, ms, why = config_in(row), float(row["ms"]), ""
        if a.settings:
            said = before.get((row["options"], row["config"]), {"forecast_ms": "", "ms_by": "not among the forecasts"})
        else:
            dry, why = program.forecast(shlex.split(row["options"]), config, a.device)
            said = said_of(dry) if dry else {"forecast_ms": "", "ms_by": why}
        what = named(config)
        if not said["forecast_ms"]:
            none.append(row["options"])
            out.writerow([f"{ms:.4g}", "", "", "", "", said["ms_by"], what, row["options"]])
            continue
        expected, low, high = (float(said[c]) for c in ("forecast_ms", "ms_low", "ms_high"))
        error, inside = expected / ms - 1, low <= ms <= high
        errors.setdefault(row["precision"], []).append((error, inside, (high - low) / 2 / expected, cards_of(shlex.split(row["options"]))))
        if not inside:
            outside.append(f"{error:+.1%} {what} {row['options']}")
        out.writerow([*(f"{x:.4g}" for x in (ms, expected, low, high)), f"{error:+.3f}", "yes" if inside else "no", what, row["options"]])
    for precision in errors:
        summary(precision, [e[:3] for e in errors[precision]])
    every = [r for rows in errors.values() for r in rows]
    if any(e[3] > 1 for e in every):
        summary("on one card", [e[:3] for e in every if e[3] == 1])
        summary("on several", [e[:3] for e in every if e[3] > 1])
    if errors:
        summary("all", [e[:3] for e in every])
    if none:
        print(f"# {len(none)} without ms")
    for line in outside:
        print(f"# outside: {line}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["forecast", "measure", "table"])
    p.add_argument("file")
    p.add_argument("--count", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--settings", default="", help="forecasts made before: their settings are measured, and held against them")
    p.add_argument("--cards", type=int, default=1, help="of this machine: settings on two of them too, and those of one card side by side")
    p.add_argument("--only-shared", action="store_true", help="measure only what several cards take together")
    p.add_argument("--seconds", type=float, default=1e9, help="begin no setting after so long")
    p.add_argument("--gib", type=int, default=60, help="only settings that need no more")
    p.add_argument("--device", default="h200", help="whose forecasts; settings depend on it only where one is refused there")
    p.add_argument("--on", default="cuda", help="where to measure")
    p.add_argument("--program", default=PROGRAM)
    a = p.parse_args()
    {"forecast": forecast, "measure": measure, "table": table}[a.what](a)


if __name__ == "__main__":
    main()
