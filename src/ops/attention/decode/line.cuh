// The work of flash_decode as one line of steps, and the runs of it that clusters of blocks walk.
#pragma once
#include "ops/attention/decode/decode.h"

namespace headroom::attention::decode {

struct Sequence {
  int first, last, steps;  // keys that any of its rows sees
};

struct Place {  // on the line
  int batch, unit, step;
  Sequence keys;
};

__device__ __forceinline__ Run keys_of_row(const Args& a, int batch, int position) {
  if (a.documents.count) return a.documents.keys_of_row(batch, position);
  return {a.band.first(position), a.band.last(position)};
}
__device__ __forceinline__ Sequence sequence(const Args& a, int batch) {  // both ends of a row's keys never move left from row to row
  const Run top = keys_of_row(a, batch, 0);
  const int first = top.first, last = max(first, a.band.len_q == 1 ? top.last : keys_of_row(a, batch, a.band.len_q - 1).last);
  return {first, last, max(1, int(a.by_span.of_number(unsigned(last - first + a.span - 1))))};  // rows that see nothing are written too
}

__device__ __forceinline__ void advance(const Args& a, int units, Place& at) {
  if (++at.step < at.keys.steps) return;
  at.step = 0;
  if (++at.unit < units) return;
  at.unit = 0;
  if (++at.batch < a.batch && a.documents.count) at.keys = sequence(a, at.batch);
}

// The steps of all sequences, one behind another; by a whole warp.
struct Line {
  const Args& a;
  const int units, lane;
  Sequence mine;  // this lane's of the first 32; without documents all are alike
  int end, all;   // where this lane's sequence of the first 32 ends; steps in all

  __device__ __forceinline__ Line(const Args& args, int units_of_sequence) : a(args), units(units_of_sequence), lane(threadIdx.x % 32) {
    if (!a.documents.count) {
      mine = sequence(a, 0);
      all = mine.steps * units * a.batch;
      return;
    }
    fetch(0);
    all = __shfl_sync(~0u, end, 31);
    int more = 0;
    for (int b = 32 + lane; b < a.batch; b += 32) more += sequence(a, b).steps * units;
    for (int step = 16; step; step /= 2) more += __shfl_xor_sync(~0u, more, step);
    all += more;
  }
  __device__ __forceinline__ void fetch(int base) {
    mine = base + lane < a.batch ? sequence(a, base + lane) : Sequence{0, 0, 0};
    end = mine.steps * units;
    for (int step = 1; step < 32; step *= 2) {
      const int before = __shfl_up_sync(~0u, end, step);
      if (lane >= step) end += before;
    }
  }
  __device__ __forceinline__ Place place(int at) {
    if (!a.documents.count) {
      const int unit = int(a.by_steps.of_number(unsigned(at))), batch = int(a.by_units.of_number(unsigned(unit)));
      return {batch, unit - batch * units, at - unit * mine.steps, mine};
    }
    for (int base = 0;; base += 32) {
      if (base) fetch(base);
      const unsigned past = __ballot_sync(~0u, end > at);
      if (!past) {
        at -= __shfl_sync(~0u, end, 31);
        continue;
      }
      const int owner = __ffs(past) - 1;
      const Sequence keys = {__shfl_sync(~0u, mine.first, owner), __shfl_sync(~0u, mine.last, owner), __shfl_sync(~0u, mine.steps, owner)};
      at -= __shfl_sync(~0u, end, owner) - keys.steps * units;
      const int unit = at / keys.steps;
      return {base + owner, unit, at - unit * keys.steps, keys};
    }
  }
};

// The runs of a line that clusters walk: the first `longer` of them have a step more than `each`.
struct Runs {
  int blocks, each, longer;
  __device__ __forceinline__ Runs(const Args& a, int all)
      : blocks(min(all, a.clusters)),
        each(all < a.clusters ? 1 : int(a.by_clusters.of_number(unsigned(all)))),
        longer(all - each * blocks) {}
  __device__ __forceinline__ int begin(int block) const { return block * each + min(block, longer); }
  __device__ __forceinline__ int block_of(int step) const {
    const int in_longer = longer * (each + 1);
    return step < in_longer ? step / (each + 1) : longer + (step - in_longer) / each;
  }
};

}  // namespace headroom::attention::decode
