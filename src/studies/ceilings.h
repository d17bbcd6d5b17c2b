// The measured ceilings of a machine: how fast it copies, how fast it multiplies. What MFU and roofs are read against.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/device.h"
#include "instruments/bench/bench.h"

namespace headroom::studies {

struct CeilingRow {
  std::string what, dtype;  // "copy" or "matmul"
  std::int64_t size = 0;    // bytes of one side of the copy; n of an n³ product
  bench::Stats ms{};
  double copy_bytes_per_s = 0;  // read plus written
  double flops = 0;             // per second
  int sm_mhz = 0;               // a GPU's clock under this load; 0: not known
  std::string held_back{};      // what kept that clock below its highest
};

struct MeasuredCeilings {
  std::vector<CeilingRow> rows;
  Ceilings ceilings;  // the best of the rows
  std::string how;    // what a rate is the rate of
};

// A few seconds. On the CPU a rate is of the fastest sample: what the machine can do when nothing disturbs it. On a GPU it is of the
// median: under full load a card lowers its clocks, and what it sustains is what a step can have.
MeasuredCeilings measure_ceilings(const Device&, const bench::Protocol&, const std::function<bool()>& stop);

// How every study times a GPU, for people to read beside the numbers.
constexpr const char* gpu_timing =
    "events on the stream around a CUDA graph of as many calls as last 0.5 ms (64 at most), launched while the card is busy: no gaps of "
    "the "
    "host are counted; caches are as the previous call left them";

Ceilings best_of(const std::vector<CeilingRow>&);

}  // namespace headroom::studies
