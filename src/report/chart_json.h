// A chart as JSON and back: what the page reads, and what the store keeps beside a run's rows. Words said on hover are written once.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "report/record.h"

namespace headroom {

std::string_view name_of(Unit);
std::string_view name_of(Chart::Kind);

nlohmann::ordered_json json_of(const Chart&);
std::optional<Chart> chart_of(const nlohmann::ordered_json&);  // nothing when it is none

}  // namespace headroom
