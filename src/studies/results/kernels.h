// A forecast held against a profile of the same program, kernel by kernel. The forecast lists what a step gives to the card, in order; the
// profile has what ran. Both are aligned by names and order, so that programs whose counts differ are still compared where they are alike.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

struct ForecastKernel {
  std::string kernel, kind, shape;  // kind: as dry/work_seconds.h names parts
  double us = 0;
};
struct RanKernel {
  std::string kernel, kind;  // kind: kernel, copy, fill
  double us = 0;
};

// Kernels of one name, and where a library chose them, of one shape.
struct KernelPairRow {
  std::string kernel, shape, ran;  // ran: what the card calls it, where that is another name
  std::int64_t forecast = 0, seen = 0;
  double forecast_ms = 0, ms = 0, off_ms = 0;  // off: forecast less measured
  std::optional<double> ratio{};               // forecast over measured, of those that have a partner
};
void describe(Of<KernelPairRow> auto& r, auto&& f) {
  using enum Role;
  f(r.kernel, {.name = "kernel"});
  f(r.shape, {.name = "shape"});
  f(r.ran, {.name = "ran"});
  f(r.forecast, {.name = "forecast", .role = noted});
  f(r.seen, {.name = "seen", .role = noted});
  f(r.forecast_ms, {.name = "forecast_ms", .role = measured, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.off_ms, {.name = "off_ms", .role = noted, .unit = Unit::ms});
  f(r.ratio, {.name = "ratio", .role = noted, .unit = Unit::ratio});
}

struct KernelsJoined {
  std::vector<KernelPairRow> rows;  // the largest difference first
  double forecast_ms = 0, ms = 0;   // one step's
  std::int64_t pairs = 0, only_forecast = 0, only_seen = 0;
};

// `ran`: of the whole program, in order. Of its steps, the last one that is like the forecast is taken.
KernelsJoined joined_kernels(const std::vector<ForecastKernel>& forecast, const std::vector<RanKernel>& ran);

// What a file of `headroom forecast` and one of `headroom profile` have of it, in either order; nothing where they are not those.
struct KernelFiles {
  std::vector<ForecastKernel> forecast;
  std::vector<RanKernel> ran;
};
std::optional<KernelFiles> kernels_of(const RowObject& a, const RowObject& b);

Record kernels_record(const KernelsJoined&);

}  // namespace headroom::studies
