// memory_measured — runs steps that were forecast: bytes by the ledger and, on a card, by the driver.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "engine/pass/training.h"
#include "report/record.h"

namespace headroom::studies {

// A row for each recipe. One that does not fit, or that nothing here serves, is a row with the reason.
Table measured_bytes(const std::vector<engine::Recipe>&, const Device&, int threads,
                     const std::function<void(const std::string& doing)>& progress);

}  // namespace headroom::studies
