// Input of the page (src/report/page): a record's parts in reading order, as JSON. Tables are stored by column, and a column of one
// value once. Numbers have six significant digits, so ten thousand rows stay small; CSV and JSON have full precision.
#pragma once
#include <nlohmann/json.hpp>

#include "report/record.h"

namespace headroom {

struct PageLimits {
  std::size_t rows = 50'000;    // of a table; the rest is counted, and the page says so
  std::size_t points = 20'000;  // of a series; of a timeline the longest spans stay, of other lines the points lie as evenly
};

nlohmann::ordered_json page_data(const Record&, const PageLimits& = {});

}  // namespace headroom
