#!/usr/bin/env bash
# What must be run on a card before kernels beside the program land (kernels_beside.md): the GPU tests of the branch, then main and branch in turns.
#
#   kernels_beside_card.sh MAIN BRANCH [tests|turns|all]
#
# MAIN and BRANCH are two source trees whose build/release is built (`make build`; for the tests, the target gpu_tests in BRANCH).
# ROUNDS=3 turns; PYTHON=python3 with torch for CUDA, or the door of Python is left out; DEVICE=cpu tries this script on a laptop, with small problems.
# Prints a row for each number: its median in MAIN and in BRANCH, by how much BRANCH is longer, and how far MAIN's own rounds are apart. A row is
# "slower" where BRANCH's best round is longer than MAIN's worst, and the medians differ by more than 1 %. Exit codes: 0 nothing is slower, 1 something failed, 3 something is slower.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,/^set/p' "$0" | sed '$d; s/^# \{0,1\}//'; exit 2; }
main=$(cd "$1" && pwd) branch=$(cd "$2" && pwd) part=${3:-all}
device=${DEVICE:-cuda} rounds=${ROUNDS:-3} python=${PYTHON:-python3}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

if [ "$part" != turns ]; then
  echo "== GPU tests of $branch"
  (cd "$branch" && ctest --preset release -L gpu --output-on-failure)
fi
[ "$part" != tests ] || exit 0

program() {  # program TREE NAME WORDS…: its rows, as lines of "NAME · row · column <tab> value"
  local tree=$1 name=$2
  shift 2
  "$tree/build/release/headroom" "$@" --device "$device" --db "$out/store.db" --format json --out "$out/rows.json" >"$out/said" 2>&1 ||
    { cat "$out/said" >&2; return 1; }
  python3 - "$name" "$out/rows.json" <<'PY'
import json, sys
name, file = sys.argv[1:]
rows = json.load(open(file))["rows"]
for row in rows:
    if row["status"] != "ok":
        sys.exit(f"{name}: {row['status']}: {row['why']}")
    which = row["phase"] if "phase" in row else f"{row['variant']} {row['len_q']} x {row['len_k']} dim {row['dim']}"
    for column in ("fwd_ms", "bwd_ms", "ms", "host_ms"):
        if row.get(column) is not None:
            print(f"{name} · {which} · {column}\t{row[column]}")
PY
}

c_calls() {  # the host's time of one call of the C interface
  local tree=$1
  [ "$device" = cuda ] || return 0
  cc -O2 -I"$branch/include" "$branch/bench/call_host_time.c" -o "$out/call_host_time" -L"$tree/build/release" -lheadroom
  LD_LIBRARY_PATH="$tree/build/release:${LD_LIBRARY_PATH:-}" "$out/call_host_time" >"$out/calls"
  awk -F '  +' 'NR > 1 {printf "C call · %s · %s · %s · us\t%s\n", $1, $2, $3, $4}' "$out/calls"
}

python_door() {
  local tree=$1
  PYTHONPATH="$tree/python" HEADROOM_LIBRARY="$tree/build/release/libheadroom.so" "$python" "$tree/bench/peers/torch_operator.py" >"$out/door.json"
  "$python" - "$out/door.json" <<'PY'
import json, sys

def walk(at, value):
    if isinstance(value, dict):
        if "headroom_forward_us" in value:
            for key in ("headroom_forward_us", "library_forward_us", "headroom_forward_backward_us"):
                print(f"Python · {value.get('device')} · {key}\t{value[key]}")
        for key, inner in value.items():
            walk(key, inner)
    elif isinstance(value, list):
        for inner in value:
            walk(at, inner)

walk("", json.load(open(sys.argv[1])))
PY
}

measure() {
  local tree=$1
  if [ "$device" = cuda ]; then
    program "$tree" decode attention --attention flash_decode --precision bf16 --batch 4 --heads 32 --kv-heads 8 --dim 128 --len 1 --len-k 8192 --mask causal \
      --pass forward --steps 300
    program "$tree" short attention --attention flash --precision bf16 --batch 4 --heads 16 --dim 64,128 --len 128,256,512,1024 --mask causal --steps 200
    program "$tree" "2.7B bf16" step --model 2.7B --len 1024 --precision bf16 --gradients none --phase train --warmup 3 --steps 10
    program "$tree" "2.7B fp8" step --model 2.7B --len 1024 --precision fp8 --phase train --warmup 3 --steps 10
    program "$tree" "small bf16" step --model small --len 512 --precision bf16 --warmup 5 --steps 50
  else
    program "$tree" short attention --attention flash --precision fp32 --batch 1 --heads 4 --dim 64 --len 128,256 --mask causal --steps 20
    program "$tree" tiny step --layers 2 --width 64 --heads 2 --vocab 100 --batch 1 --len 32 --warmup 2 --steps 20
  fi
  c_calls "$tree"
  if "$python" -c 'import torch, sys; sys.exit(not (sys.argv[1] == "cpu" or torch.cuda.is_available()))' "$device" 2>/dev/null; then
    python_door "$tree"
  fi
}

for round in $(seq "$rounds"); do
  for which in main branch; do
    echo "== round $round of $rounds, $which" >&2
    measure "${!which}" >"$out/$which.$round"
  done
done

python3 - "$out" "$rounds" <<'PY'
import statistics, sys
folder, rounds = sys.argv[1], int(sys.argv[2])
numbers = {}  # name: {"main": […], "branch": […]}
for which in ("main", "branch"):
    for n in range(1, rounds + 1):
        for line in open(f"{folder}/{which}.{n}"):
            name, value = line.rstrip("\n").rsplit("\t", 1)
            numbers.setdefault(name, {"main": [], "branch": []})[which].append(float(value))
width = max(map(len, numbers))
print(f"{'':{width}} {'main':>10} {'branch':>10} {'longer':>8} {'spread':>8}")
slower = False
for name, of in numbers.items():
    if not of["main"] or not of["branch"]:
        print(f"{name:{width}} is in one tree alone")
        slower = True
        continue
    a, b = (statistics.median(of[which]) for which in ("main", "branch"))
    longer, spread = b / a - 1, (max(of["main"]) - min(of["main"])) / a
    worse = min(of["branch"]) > max(of["main"]) and longer > 0.01
    slower |= worse
    print(f"{name:{width}} {a:10.4f} {b:10.4f} {longer:8.1%} {spread:8.1%}{'  slower' if worse else ''}")
sys.exit(3 if slower else 0)
PY
