// A forecast of our own step held against a profile of it, op by op: files of `headroom memory model` and `headroom profile step`.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "report/record.h"
#include "store/row_objects.h"

namespace headroom::studies {

struct OpPairRow {
  std::string op;
  std::optional<double> times;                 // how often the forecast has it in a step
  std::optional<std::int64_t> launches;        // kernels of it that ran in a step
  double forecast_ms = 0, ms = 0, off_ms = 0;  // off: forecast less measured
  std::optional<double> ratio{};               // forecast over measured
};
void describe(Of<OpPairRow> auto& r, auto&& f) {
  using enum Role;
  f(r.op, {.name = "op"});
  f(r.times, {.name = "times", .role = noted});
  f(r.launches, {.name = "launches", .role = noted});
  f(r.forecast_ms, {.name = "forecast_ms", .role = measured, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.off_ms, {.name = "off_ms", .role = noted, .unit = Unit::ms, .show = Show::bar});
  f(r.ratio, {.name = "ratio", .role = noted, .unit = Unit::ratio});
}

struct OpsJoined {
  std::vector<OpPairRow> rows;     // the largest difference first
  double forecast_ms = 0, ms = 0;  // one step's kernels
};

// The two files in either order; nothing where they are not those, an Error where a forecast has several steps or no times.
std::optional<OpsJoined> joined_ops(const RowObject& a, const RowObject& b);

Record ops_record(const OpsJoined&);

}  // namespace headroom::studies
