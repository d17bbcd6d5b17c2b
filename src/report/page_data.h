// Input of the page (src/report/page): a record's parts in reading order, as JSON. Tables are stored by column, and a column of one
// value once. Numbers have six significant digits, so ten thousand rows stay small; CSV and JSON have full precision.
#pragma once
#include <nlohmann/json.hpp>

#include "report/record.h"

namespace headroom {

struct PageLimits {
  std::size_t rows = 50'000;    // most rows of a table; the page says how many more there are
  std::size_t points = 20'000;  // most points of a series; a timeline keeps its longest spans, of other lines the points lie as evenly
};

nlohmann::ordered_json page_data(const Record&, const PageLimits& = {});

}  // namespace headroom
