#!/bin/sh
# Held-out settings of our own step on a card, held against forecasts that were committed before, and against those by the card's own numbers.
#   sh bench/lab/next/times_on_card.sh FOLDER h200|h100        about 4 minutes on one card; writes FOLDER/{steps.csv,own.json,device.txt,table.txt}
# steps.csv goes to bench/results/<card>_random_steps_1127_<date>.csv, table.txt to the table of docs/performance.md.
set -u
folder=$1 card=$2 here=$(cd "$(dirname "$0")/../../.." && pwd)
program=${HEADROOM:-$here/build/release/headroom}
said=$here/bench/results/${card}_random_steps_forecast_1127_2026-11-27.csv
mkdir -p "$folder"
steps() { python3 "$here/bench/random_steps.py" "$1" "$folder/steps.csv" --program "$program" --device "$2" --seconds 150 ${3:+--settings "$3"}; }
{
  echo "forecasts made before"
  steps measure "$card" "$said"
} > "$folder/table.txt" 2>&1
grep '^#' "$folder/table.txt"
timeout 120 "$program" device --efficiencies --precision fp32,bf16,tf32,fp16,fp8 --save "$folder/own.json" --db "$folder/r.db" > "$folder/device.txt" 2>&1
tail -n 30 "$folder/device.txt"
[ -s "$folder/own.json" ] || exit 1
{
  echo "by the card's own numbers"
  steps table "$folder/own.json"
} > "$folder/own.txt" 2>&1
grep '^#' "$folder/own.txt"
cat "$folder/own.txt" >> "$folder/table.txt"
