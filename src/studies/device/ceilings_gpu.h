// The ceilings of a CUDA device, for ceilings.cpp.
#pragma once
#include "studies/device/ceilings.h"

namespace headroom::studies {

std::vector<CeilingRow> measure_on_gpu(const Device&, const bench::Protocol&, const std::function<bool()>& stop);

constexpr const char* both_ways = "both ways";

// Adds rows of copies between the card and pinned host memory; says why if there are none.
std::string measure_host_link(const Device&, const bench::Protocol&, const std::function<bool()>& stop, std::vector<CeilingRow>&);

}  // namespace headroom::studies
