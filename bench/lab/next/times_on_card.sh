#!/bin/sh
# Held-out times on two cards of one host, held against forecasts that were made before: SAID=FILE names them. Nine minutes; every part keeps what it has.
#   sh bench/lab/next/times_on_card.sh FOLDER [seconds]        HEADROOM=program and HEADROOM_NCCL=libnccl.so.2 where they are elsewhere
#   sh bench/lab/next/times_on_card.sh FOLDER part NAME        one part of it: own, device, programs, steps
# Writes FOLDER/{steps.csv,table.txt}: 60 settings of our own step; {device.txt,own.json}: the card's own factors in five precisions; programs.csv:
# PyTorch programs; pytorch.csv: PyTorch's steps of a described model, two ranks among them. steps.csv goes to bench/results/<card>_random_steps_1128_<date>.csv.
set -u
folder=$1 here=$(cd "$(dirname "$0")/../../.." && pwd) began=$(date +%s)
export HEADROOM="${HEADROOM:-$here/build/release/headroom}"
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
left() { echo $((${seconds:-540} - $(date +%s) + began)); }
least() { [ "$1" -lt "$2" ] && echo "$1" || echo "$2"; }

case $(nvidia-smi --query-gpu=name --format=csv,noheader | head -n 1) in *H200*) card=h200 ;; *) card=h100 ;; esac
said=${SAID:?a file of bench/random_steps.py forecast}
if [ -z "${HEADROOM_NCCL:-}" ]; then  # PyTorch brings one
  found=$(python3 -c 'import glob, nvidia; print((glob.glob(list(nvidia.__path__)[0] + "/nccl/lib/libnccl.so.2") or [""])[0])' 2>/dev/null)
  [ -n "$found" ] && export HEADROOM_NCCL="$found"
fi

own() {  # 60 settings: side by side what one card takes, then what both take
  timeout "$1" python3 "$here/bench/random_steps.py" measure "$folder/steps.csv" --settings "$said" --device "$card" --program "$HEADROOM" --cards 2 \
    --seconds "$(($1 - 30))" > "$folder/table.txt" 2>&1
  grep '^#' "$folder/table.txt"
}

device() {  # the card's own factors; tensor cores in 8 bits among them
  CUDA_VISIBLE_DEVICES=0 timeout "$1" "$HEADROOM" device --efficiencies --precision fp8,tf32,fp16,bf16,fp32 --save "$folder/own.json" \
    --db "$(mktemp -d)/r.db" > "$folder/device.txt" 2>&1
  [ -s "$folder/own.json" ] || CUDA_VISIBLE_DEVICES=0 timeout 60 "$HEADROOM" device --efficiencies --precision fp8 --save "$folder/own.json" \
    --db "$(mktemp -d)/r.db" >> "$folder/device.txt" 2>&1
  tail -n 5 "$folder/device.txt"
}

programs() {  # programs that need torch and transformers alone
  scratch=$(mktemp -d)
  CUDA_VISIBLE_DEVICES=1 timeout "$1" python3 "$here/bench/forecast/times.py" "$scratch" --only steps --no-trace --each 3 --seconds "$(($1 - 20))" \
    --programs "$here/bench/forecast/times_held_out_2026-11-28.txt" > "$scratch/log" 2>&1
  cp "$scratch/programs.csv" "$folder/programs.csv"
  grep ' ms, host' "$scratch/log"
}

steps() {  # PyTorch's step of described models: two lanes of one card each, then both cards
  end=$(($(date +%s) + $1)) alone="$folder/pytorch.alone"
  split -n r/2 "$here/bench/lab/next/pytorch_times_one_card.txt" "$alone."
  lane() {
    CUDA_VISIBLE_DEVICES=$1 timeout "$3" python3 "$here/bench/peers/pytorch_steps.py" --times --beside 1 --until "$(($3 - 30))" --out "$alone.$1.csv" \
      $(cat "$2") > /dev/null 2>&1
  }
  lane 0 "$alone.aa" $(($1 - 60)) & first=$!
  lane 1 "$alone.ab" $(($1 - 60)) & second=$!
  wait $first $second
  timeout "$((end - $(date +%s)))" python3 "$here/bench/peers/pytorch_steps.py" --times --beside 1 --ranks nccl --until "$((end - $(date +%s) - 30))" \
    --out "$alone.2.csv" $(cat "$here/bench/lab/next/pytorch_times_two_cards.txt") > /dev/null 2>&1
  head -n 1 "$alone.0.csv" > "$folder/pytorch.csv"
  for part in 0 1 2; do [ -s "$alone.$part.csv" ] && tail -n +2 "$alone.$part.csv" >> "$folder/pytorch.csv"; done
  rm -f "$alone".*
  wc -l "$folder/pytorch.csv"
}

if [ "${2:-}" = part ]; then
  "$3" "${4:-300}"
  exit
fi
seconds=${2:-540}
own "$(least 200 "$(left)")"
device "$(least 150 "$(($(left) - 20))")" & first=$!
programs "$(least 170 "$(($(left) - 20))")" & second=$!
wait $first $second
[ "$(left)" -gt 60 ] && steps "$(($(left) - 10))"
ls -l "$folder"
