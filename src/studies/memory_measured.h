// memory_measured — steps that were forecast, run: what the ledger says they took, and on a card what the driver says.
#pragma once
#include <vector>

#include "engine/training.h"
#include "report/record.h"

namespace headroom {

// A row for each recipe. One that does not fit, or that nothing here serves, is a row with the reason.
Table measured_bytes(const std::vector<engine::Recipe>&, const Device&, int threads);

}  // namespace headroom
