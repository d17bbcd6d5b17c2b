// The number formats side by side: range and precision, bytes of a value with its scales, and the error on normal data.
#pragma once
#include <cstdint>

#include "gpu/place.h"
#include "report/record.h"

namespace headroom::studies::precision {

struct FormatsSettings {
  std::int64_t values = 65536;  // normal numbers that the measured error is taken on
  std::uint64_t seed = 0;
};

void describe(Of<FormatsSettings> auto& s, auto&& f) {
  f(s.values, {.name = "values", .about = "Normal numbers that the error is measured on", .allowed = {1, 100'000'000}});
  f(s.seed, {.name = "seed"});
}

// RMS of (x − what came back) over RMS of x, for N(0, 1). Block formats by name as in base/formats.h.
double format_error(std::string_view format, const FormatsSettings&);

Record formats_record(const FormatsSettings&, const Place* card = nullptr);  // a card: whether its bits are the CPU's

}  // namespace headroom::studies::precision
