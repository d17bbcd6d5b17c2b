// The ceilings of a CUDA device, for ceilings.cpp.
#pragma once
#include "studies/device/ceilings.h"

namespace headroom::studies {

std::vector<CeilingRow> measure_on_gpu(const Device&, const bench::Protocol&, const std::function<bool()>& stop);

}  // namespace headroom::studies
