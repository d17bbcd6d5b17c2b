#!/bin/sh
# Builds the study; fails on serialised wgmma and on spills.  usage: build.sh [source] [output]
set -e
cd "$(dirname "$0")"
src=${1:-bwd.cu}; out=${2:-/tmp/hopper_bwd}
nvcc -std=c++20 -O3 --expt-relaxed-constexpr -gencode arch=compute_90a,code=sm_90a -cudart static -Xptxas -v "$src" -o "$out" > "$out.log" 2>&1 || { cat "$out.log"; exit 1; }
grep -E "Compiling|registers|spill" "$out.log" | grep -A2 "attention_bwd_sm90" | sed 's/ptxas info *: //' | c++filt | grep -vE "^--"
if grep -E "C7510|C7511" "$out.log"; then exit 1; fi
