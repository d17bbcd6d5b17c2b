#!/usr/bin/env python3
"""Random settings of our own training step: what each takes on a card, what is forecast of it, and whether that lies inside the interval.

  bench/random_steps.py measure steps.csv --count 40 --seed 1     on a card; every setting is one line, kept as it comes
  bench/random_steps.py table steps.csv --device h100             anywhere: forecasts of the same settings by this build

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
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
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

    def rows(self, words, options, config, limit=120):
        """The rows of a command in JSON, or the line that says why there are none."""
        named = []
        if config:
            folder = os.path.join(self.folder, str(abs(hash(json.dumps(config, sort_keys=True)))))
            os.makedirs(folder, exist_ok=True)
            with open(os.path.join(folder, "config.json"), "w") as f:
                json.dump(config, f)
            named = ["--model", folder]
        try:
            p = subprocess.run([self.path, *words, *named, *options, "--format", "json"], capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            return [], "took too long"
        try:
            return json.loads(p.stdout)["rows"], ""
        except (ValueError, KeyError):
            return [], (p.stderr.strip() or f"exit code {p.returncode}").splitlines()[-1][:200]

    def forecast(self, options, config, device):
        """The dry run's row, or why there is none."""
        rows, why = self.rows(["memory", "model", "--device", device], options, config)
        return (rows[0], "") if rows else (None, why)


def seconds_of(row, precision):
    return row["flops"] / {"fp32": 40e12, "tf32": 250e12}.get(precision, 400e12)


def settings(program, count, seed, most_bytes, device):
    r, seen = random.Random(seed), set()
    while count > 0:
        options, config = one(r)
        key = json.dumps([options, config])
        if key in seen:
            continue
        seen.add(key)
        row, _ = program.forecast(options, config, device)
        if row is None or row["needed_bytes"] > most_bytes or seconds_of(row, row["precision"]) > 0.4:
            continue
        count -= 1
        yield options, config


def measure(a):
    program, began = Program(a.program), time.monotonic()
    try:
        card = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True).stdout
    except FileNotFoundError:
        card = ""
    with open(a.file, "w", newline="") as f:
        f.write(f"# bench/random_steps.py measure --count {a.count} --seed {a.seed}, on {(card.strip() or 'no GPU').splitlines()[0]}\n")
        out = csv.DictWriter(f, COLUMNS)
        out.writeheader()
        for options, config in settings(program, a.count, a.seed, a.gib << 30, a.device):
            if time.monotonic() - began > a.seconds:
                print(f"the time is over: {a.seconds} s", file=sys.stderr)
                break
            words = ["step", "--device", a.on, "--warmup", "2", "--steps", "20", "--seconds", "0.4", "--db", os.path.join(program.folder, "r.db")]
            rows, why = program.rows(words, options, config, 60)
            row = rows[0] if rows else {"status": "failed", "why": why}
            words = shlex.join(options)
            out.writerow({"options": words, "config": json.dumps(config) if config else "", "precision": options[options.index("--precision") + 1],
                          **{c: row.get(c, "") for c in ("ms", "ms_std", "steps", "status", "why")}})
            f.flush()
            said = f"forecast {row['forecast_ms']:.4g} ({row['forecast_ms_low']:.4g} to {row['forecast_ms_high']:.4g})" if row.get("forecast_ms") else ""
            family = config["model_type"] if config else ""
            print(f"{time.monotonic() - began:6.1f} s  {row.get('ms')} ms {said} {row['status']}  {words} {family}", flush=True)


def named(config):
    if not config:
        return ""
    return f"{config['model_type']} {config.get('num_hidden_layers', config.get('n_layer'))} x {config.get('hidden_size', config.get('n_embd'))}"


def table(a):
    program, errors, outside, widths, none = Program(a.program), [], [], [], []
    with open(a.file, newline="") as f:
        rows = list(csv.DictReader(line for line in f if not line.startswith("#")))
    out = csv.writer(sys.stdout)
    out.writerow(["measured_ms", "forecast_ms", "ms_low", "ms_high", "error", "inside", "model", "options"])
    for row in rows:
        if row["status"] != "ok" or not row["ms"]:
            continue
        config, ms = json.loads(row["config"]) if row["config"] else None, float(row["ms"])
        said, why = program.forecast(shlex.split(row["options"]), config, a.device)
        what = named(config)
        if said is None or said["ms"] is None:
            none.append(row["options"])
            out.writerow([f"{ms:.4g}", "", "", "", "", why or said.get("ms_by", ""), what, row["options"]])
            continue
        error, inside = said["ms"] / ms - 1, said["ms_low"] <= ms <= said["ms_high"]
        errors.append(abs(error))
        widths.append((said["ms_high"] - said["ms_low"]) / 2 / said["ms"])
        if not inside:
            outside.append(f"{error:+.1%} {what} {row['options']}")
        times = [f"{x:.4g}" for x in (ms, said["ms"], said["ms_low"], said["ms_high"])]
        out.writerow([*times, f"{error:+.3f}", "yes" if inside else "no", what, row["options"]])
    if errors:
        within = sum(e <= 0.06 for e in errors) / len(errors)
        print(f"# {len(errors)} settings: median error {statistics.median(errors):.1%}, worst {max(errors):.1%}, {within:.0%} within 6 %; "
              f"{len(errors) - len(outside)} inside their intervals, on average ± {statistics.mean(widths):.0%}; {len(none)} without ms")
    for line in outside:
        print(f"# outside: {line}")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("what", choices=["measure", "table"])
    p.add_argument("file")
    p.add_argument("--count", type=int, default=40)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--seconds", type=float, default=1e9, help="begin no setting after so long")
    p.add_argument("--gib", type=int, default=60, help="only settings that need no more")
    p.add_argument("--device", default="h200", help="whose forecasts; settings depend on it only where one is refused there")
    p.add_argument("--on", default="cuda", help="where to measure")
    p.add_argument("--program", default=os.path.join(ROOT, "build", "release", "headroom"))
    a = p.parse_args()
    measure(a) if a.what == "measure" else table(a)


if __name__ == "__main__":
    main()
