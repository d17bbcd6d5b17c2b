// The ways to share a step out over GPUs, held against each other by the numbers that decide: bytes a layer, exposed time, bubble. Sharding
// and split tokens are settings of the plan, which run. Tensor and pipeline parallel are forecasts only: a dry run of a rank's share of the
// model (fewer heads, a narrower feed-forward layer, a part of the vocabulary; or fewer blocks), and what it sends by formula.
#pragma once
#include <vector>

#include "report/record.h"
#include "studies/plan/search.h"

namespace headroom::studies {

// A table with a row for each way, and a note. `all`: the settings of the plan, fastest first.
std::vector<Part> ways_of(const Plan&, const std::vector<Setting>& all, const Room&);

}  // namespace headroom::studies
