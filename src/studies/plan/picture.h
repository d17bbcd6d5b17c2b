// The settings of a plan as a picture: bytes against time, with a line through those that no other setting beats in both.
#pragma once
#include <optional>
#include <span>

#include "report/record.h"
#include "studies/plan/plan.h"

namespace headroom::studies {

// Nothing where there are fewer than two settings. memory_bytes: what they have to fit in; 0: not said.
std::optional<Chart> picture_of(std::span<const PlanRow>, std::uint64_t memory_bytes);

}  // namespace headroom::studies
