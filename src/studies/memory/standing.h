// What is allocated during a step: tensors of one name, phase, dtype and shape together, over all blocks.
#pragma once
#include <vector>

#include "engine/forecast/forecast.h"

namespace headroom::studies {

struct Standing {
  Entry first;             // the first of them at the moment with the most bytes
  std::int64_t count = 0;  // at once, at most
  std::uint64_t bytes = 0, at_peak = 0;
};

// In the order in which they first came. A tensor that comes and goes counts as often as it is there at once.
std::vector<Standing> standing_by_name(const engine::Forecast&);

}  // namespace headroom::studies
