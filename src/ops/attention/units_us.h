// How long a pass of attention keeps Hopper's units busy at their full clock, in microseconds. Forecasts of steps are made of it.
#pragma once
#include "ops/attention/attention.h"

namespace headroom::attention {

// A pass whose blocks walk tiles of keys takes as long as its longest block, or as long as all blocks take on all units:
//   begin + ((alone · keys of the longest)⁴ + (full · keys of all blocks / units + tile · blocks / units)⁴)^¼
// The numbers of each kernel were fitted to kernels of an H100 and an H200 (bench/lab/kernel_times.md), which take equally long.
struct WalkedBlocks {
  double begin, alone, full, tile;  // us; us a key
  int rows;                         // a block's
  double of_group = 0;              // backward: the share of its work that walks the rows of all query heads of a key head
};
double walk_us(const Problem&, const WalkedBlocks&, int units, double sequences = 0);  // 0: the problem's batch

bool on_timed_units(const Problem&, const Device&);  // a Hopper's, and nothing that no kernel was timed with

// Packed documents as sequences of one length: as many tokens, and as many visible pairs.
struct Alike {
  Problem each;
  double sequences;
};
Alike alike(const Problem&);

// 0 where no kernel of that kind was timed. The first three: past head dim 128, documents, other cards. Hopper's backward: caps up to head dim 128.
double simt_us(const Problem&, Pass, const Device&);
double sm80_us(const Problem&, Pass, const Device&);
double sm80_fp32_us(const Problem&, Pass, const Device&);
double sm90_backward_us(const Problem&, const Device&);

}  // namespace headroom::attention
