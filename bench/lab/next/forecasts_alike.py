#!/usr/bin/env python3
"""Holds a change that must change no forecast: the JSON of some 1500 dry commands, of two programs.

  forecasts_alike.py record PROGRAM FOLDER     runs the commands; takes minutes
  forecasts_alike.py compare FOLDER OTHER      names what differs; dates, commits and command lines aside

Commands: memory model (steps and inference, ours and PyTorch's) and plan, of every preset and published model, over precisions, keep levels,
ranks, shardings, devices and weights' formats. Refusals are compared too.
"""
import concurrent.futures
import difflib
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
PRESETS = "small medium large xl 2.7B 10B 8B".split()
WIDE = PRESETS[:1] + "8B Llama-3.1-8B gemma-2-2b gpt2 Qwen3-4B Mixtral-8x7B DeepSeek-V2-Lite gpt-oss-20b OLMo-2-7B Phi-3-mini opt-125m".split()
PLANNED = "small 8B Llama-3.1-8B gemma-2-2b gpt2 Qwen3-4B Mixtral-8x7B".split()


def published():
    text = (ROOT / "src/engine/model/published.cpp").read_text()
    return re.findall(r'^\s*\{"([A-Za-z0-9_.\-]+)",\s*[0-9]+', text, re.M)


def commands():
    for m in PRESETS + published():
        step = f"memory model --model {m}"
        yield f"{step} --batch 2 --len 1024 --precision bf16 --device h200"
        yield f"{step} --batch 1 --len 512 --precision fp32,bf16,fp16 --keep input --device h100 --phase forward"
        yield f"{step} --batch 1 --len 512 --precision bf16 --keep groups:2 --device cpu --memory 16 --phase forward+backward"
        yield f"{step} --phase inference --batch 1,8 --len 1000 --precision bf16 --device h100"
        yield f"{step} --as pytorch --batch 2 --len 512 --precision bf16 --device a100"
        yield f"plan --model {m} --phase inference --batch 4 --len 1024 --device 4090"
    for m in WIDE:
        step = f"memory model --model {m}"
        for precision in "fp32 tf32 bf16 fp16 fp8".split():
            for keep in "everything no-cheap no-attention-inputs no-product gate-up-fp8 input groups:4 host:2 auto".split():
                yield f"{step} --batch 1 --len 768 --precision {precision} --keep {keep} --device h100"
        for shard in "none optimizer gradients everything".split():
            for more in ("", " --split-tokens", " --micro-batches 3", " --update during --masters halves", " --moments 8bit"):
                yield f"{step} --batch 1 --len 1024 --precision bf16 --ranks 4 --shard {shard} --device h200{more}"
        yield f"{step} --len 64 --precision bf16 --device h200 --masters halves --update during --gradients none"
        for device in "h100 a100 b200 4090 t4 l40s".split():
            yield f"{step} --batch 2 --len 2048 --precision bf16 --device {device}"
        for weights in "checkpoint precision fp8 int8 int4 nf4 mxfp4".split():
            yield f"{step} --phase inference --batch 2 --len 777 --precision fp16 --weights {weights} --device h200 --gpus 2"
        for attention in "plain flash".split():
            yield f"{step} --batch 1 --len 256 --precision bf16 --attention {attention} --device h100"
        yield f"{step} --as pytorch --batch 2 --len 512 --precision fp32,bf16 --device h100 --gpus 2 --shard everything"
        yield f"{step} --layers 3 --width 512 --heads 8 --vocab 999 --batch 2 --len 128 --device h100"
        yield f"{step} --layers 3 --kv-heads 2 --ffn 640 --batch 2 --len 128 --device cpu --memory 16"
    for m in PLANNED:
        yield f"plan --model {m} --batch 4 --len 1024 --device h200 --gpus 2 --precision bf16"
        yield f"plan --model {m} --batch 8 --len 2048 --device h100 --gpus 8 --precision bf16"


def record(program, folder):
    folder.mkdir(parents=True, exist_ok=True)

    def run(numbered):
        number, command = numbered
        done = subprocess.run([program, *command.split(), "--format", "json", "--db", str(folder / "results.db")], capture_output=True, text=True)
        (folder / f"{number:04}.txt").write_text(f"{command}\nexit {done.returncode}\n{done.stderr}\n{done.stdout}")

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(len(list(pool.map(run, enumerate(commands())))), "commands")


def compare(folder, other):
    def told(path):
        text = re.sub(r'"(command|date|commit|version)": "[^"]*"', r'"\1"', path.read_text())
        return re.sub(r" --db \S+", "", text).splitlines()

    differ = 0
    for path in sorted(folder.glob("*.txt")):
        a, b = told(path), told(other / path.name)
        if a == b:
            continue
        differ += 1
        print(a[0], *list(difflib.unified_diff(a, b, lineterm="", n=0))[2:8], sep="\n  ")
    print(differ, "differ")
    return 1 if differ else 0


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("record", "compare"):
        sys.exit(__doc__)
    if sys.argv[1] == "compare":
        sys.exit(compare(pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3])))
    record(sys.argv[2], pathlib.Path(sys.argv[3]))
