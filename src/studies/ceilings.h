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
  bench::Stats ms;
  double copy_bytes_per_s = 0;  // read plus written
  double flops = 0;             // per second
};

struct MeasuredCeilings {
  std::vector<CeilingRow> rows;
  Ceilings ceilings;  // best of the samples
};

// A few seconds on the CPU. The rates are of the fastest sample: a ceiling is what the machine can do when nothing disturbs it.
MeasuredCeilings measure_ceilings(const Device&, const bench::Protocol&, const std::function<bool()>& stop);

}  // namespace headroom::studies
