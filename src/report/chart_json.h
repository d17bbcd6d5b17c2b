// A chart as JSON and back: the page reads it, and the store keeps it beside a run's rows. Hover texts are written once.
#pragma once
#include <nlohmann/json.hpp>
#include <optional>

#include "report/record.h"

namespace headroom {

std::string_view name_of(Unit);
std::string_view name_of(Chart::Kind);

nlohmann::ordered_json json_of(const Chart&);
std::optional<Chart> chart_of(const nlohmann::ordered_json&);  // empty if it is no chart

}  // namespace headroom
