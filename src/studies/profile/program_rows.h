// The rows of another program's profile. headroom report reads these names.
#pragma once
#include <optional>
#include <string>

#include "studies/profile/rows.h"

namespace headroom::studies {

struct ProgramKernelRow {
  std::string kernel, kind;
  std::int64_t count = 0;
  double ms = 0, share = 0, mean_us = 0;
  std::optional<std::int64_t> bytes{};
};
void describe(Of<ProgramKernelRow> auto& r, auto&& f) {
  describe_kernel(r, f);
  f(r.bytes, {.name = "bytes", .role = Role::noted, .unit = Unit::bytes});
}

struct ProgramPhaseRow {  // an NVTX range, with those that it is in
  std::string phase;
  std::optional<std::int64_t> count{};
  std::optional<double> host_ms{};
  double ms = 0, share = 0;
  std::int64_t kernels = 0;
};
void describe(Of<ProgramPhaseRow> auto& r, auto&& f) {
  using enum Role;
  f(r.phase, {.name = "phase"});
  f(r.count, {.name = "count", .role = noted});
  f(r.host_ms, {.name = "host_ms", .role = measured, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share, .show = Show::bar});
  f(r.kernels, {.name = "kernels", .role = noted});
}

struct ProgramGapRow {
  std::string after, before;
  std::int64_t count = 0;
  double ms = 0, longest_us = 0;
};
void describe(Of<ProgramGapRow> auto& r, auto&& f) {
  using enum Role;
  f(r.after, {.name = "after"});
  f(r.before, {.name = "before"});
  f(r.count, {.name = "count", .role = noted});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
  f(r.longest_us, {.name = "longest_us", .role = noted});
}

struct PauseRow {
  double at_ms = 0, ms = 0;
  std::string after, before;
};
void describe(Of<PauseRow> auto& r, auto&& f) {
  using enum Role;
  f(r.at_ms, {.name = "at_ms", .role = noted});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
  f(r.after, {.name = "after"});
  f(r.before, {.name = "before"});
}

struct ProgramMomentRow {  // an allocation, or its end
  double at_ms = 0;
  std::int64_t live_bytes = 0, bytes = 0;
  std::string name;
};
void describe(Of<ProgramMomentRow> auto& r, auto&& f) {
  using enum Role;
  f(r.at_ms, {.name = "at_ms", .role = noted});
  f(r.live_bytes, {.name = "live_bytes", .role = noted, .unit = Unit::bytes});
  f(r.bytes, {.name = "bytes", .role = noted});
  f(r.name, {.name = "name"});
}

struct ProgramSliceRow {
  double start_ms = 0, ms = 0;
  std::string kernel, kind;
  std::optional<std::string> phase{};
  std::int64_t device = 0, stream = 0;
  std::optional<std::int64_t> bytes{};
};
void describe(Of<ProgramSliceRow> auto& r, auto&& f) {
  using enum Role;
  f(r.start_ms, {.name = "start_ms", .role = noted});
  f(r.ms, {.name = "ms", .role = noted});
  f(r.kernel, {.name = "kernel"});
  f(r.kind, {.name = "kind"});
  f(r.phase, {.name = "phase"});
  f(r.device, {.name = "device"});
  f(r.stream, {.name = "stream"});
  f(r.bytes, {.name = "bytes", .role = noted});
}

}  // namespace headroom::studies
