// The rows of a profile's tables: one description each. headroom report reads these names.
#pragma once
#include <optional>
#include <string>

#include "report/described_table.h"

namespace headroom::studies {

struct KernelTimeRow {
  std::string kernel, kind;
  double count = 0, ms = 0, share = 0, mean_us = 0;
};
void describe_kernel(auto& r, auto&& f) {  // for a step of ours and for another program
  using enum Role;
  f(r.kernel, {.name = "kernel"});
  f(r.kind, {.name = "kind", .role = noted, .show = Show::detail});
  f(r.count, {.name = "count", .role = noted});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share, .show = Show::bar});
  f(r.mean_us, {.name = "mean_us", .role = noted});
}
void describe(Of<KernelTimeRow> auto& r, auto&& f) { describe_kernel(r, f); }

struct PhaseRow {
  std::string phase;
  double ms = 0, share = 0;
  std::optional<double> tflops, bytes_per_s;
};
void describe(Of<PhaseRow> auto& r, auto&& f) {
  using enum Role;
  f(r.phase, {.name = "phase"});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share, .show = Show::bar});
  f(r.tflops, {.name = "tflops", .role = noted, .unit = Unit::tflops});
  f(r.bytes_per_s, {.name = "bytes_per_s", .role = noted, .unit = Unit::bytes_per_s});
}

struct ModuleRow {
  std::string module, part;
  std::optional<double> forward_ms, backward_ms, optimizer_ms;
  double ms = 0, share = 0;
};
void describe(Of<ModuleRow> auto& r, auto&& f) {
  using enum Role;
  f(r.module, {.name = "module"});
  f(r.part, {.name = "part"});
  f(r.forward_ms, {.name = "forward_ms", .role = measured, .unit = Unit::ms});
  f(r.backward_ms, {.name = "backward_ms", .role = measured, .unit = Unit::ms});
  f(r.optimizer_ms, {.name = "optimizer_ms", .role = measured, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share, .show = Show::bar});
}

struct LayerRow {
  std::int64_t layer = 0;
  std::optional<double> forward_ms, backward_ms;
  double ms = 0;
};
void describe(Of<LayerRow> auto& r, auto&& f) {
  using enum Role;
  f(r.layer, {.name = "layer"});
  f(r.forward_ms, {.name = "forward_ms", .role = measured, .unit = Unit::ms});
  f(r.backward_ms, {.name = "backward_ms", .role = measured, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
}

struct WorkRow {
  std::string phase;
  double ms = 0, matmul_ms = 0, attention_ms = 0, softmax_ms = 0, other_ms = 0, idle_ms = 0, matmul_share = 0;
};
void describe(Of<WorkRow> auto& r, auto&& f) {
  using enum Role;
  f(r.phase, {.name = "phase"});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.matmul_ms, {.name = "matmul_ms", .role = measured, .unit = Unit::ms});
  f(r.attention_ms, {.name = "attention_ms", .role = measured, .unit = Unit::ms});
  f(r.softmax_ms, {.name = "softmax_ms", .role = measured, .unit = Unit::ms});
  f(r.other_ms, {.name = "other_ms", .role = measured, .unit = Unit::ms});
  f(r.idle_ms, {.name = "idle_ms", .role = measured, .unit = Unit::ms});
  f(r.matmul_share, {.name = "matmul_share", .role = noted, .unit = Unit::share, .show = Show::bar});
}

struct AttentionPartRow {
  std::string what;
  double ms = 0, time_share = 0, gflop = 0;
  std::optional<double> flops_share, tflops;
};
void describe(Of<AttentionPartRow> auto& r, auto&& f) {
  using enum Role;
  f(r.what, {.name = "what"});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.time_share, {.name = "time_share", .role = noted, .unit = Unit::share, .show = Show::bar});
  f(r.gflop, {.name = "gflop", .role = noted});
  f(r.flops_share, {.name = "flops_share", .role = noted, .unit = Unit::share, .show = Show::bar});
  f(r.tflops, {.name = "tflops", .role = noted, .unit = Unit::tflops});
}

struct GapRow {
  std::string after, before;
  double count = 0, ms = 0, longest_us = 0;
};
void describe(Of<GapRow> auto& r, auto&& f) {
  using enum Role;
  f(r.after, {.name = "after"});
  f(r.before, {.name = "before"});
  f(r.count, {.name = "count", .role = noted});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
  f(r.longest_us, {.name = "longest_us", .role = noted});
}

struct RooflineRow {
  std::string op, precision;
  double count = 0, ms = 0, gflop = 0;
  std::optional<double> intensity, tflops, bytes_per_s, roof_tflops;
  std::optional<std::string> bound;
  std::optional<double> roof_share;
};
void describe(Of<RooflineRow> auto& r, auto&& f) {
  using enum Role;
  f(r.op, {.name = "op"});
  f(r.precision, {.name = "precision"});
  f(r.count, {.name = "count", .role = noted});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.gflop, {.name = "gflop", .role = noted});
  f(r.intensity, {.name = "intensity", .role = noted});
  f(r.tflops, {.name = "tflops", .role = noted, .unit = Unit::tflops});
  f(r.bytes_per_s, {.name = "bytes_per_s", .role = noted, .unit = Unit::bytes_per_s});
  f(r.roof_tflops, {.name = "roof_tflops", .role = noted, .unit = Unit::tflops, .show = Show::detail});
  f(r.bound, {.name = "bound", .role = noted});
  f(r.roof_share, {.name = "roof_share", .role = noted, .unit = Unit::share, .show = Show::bar});
}

struct SliceRow {
  double start_ms = 0, ms = 0;
  std::string kernel;
  std::optional<std::string> op, part, module;
  std::optional<std::int64_t> layer;
  std::optional<std::string> phase;
  std::int64_t stream = 0, step = 0;
};
void describe(Of<SliceRow> auto& r, auto&& f) {
  using enum Role;
  f(r.start_ms, {.name = "start_ms", .role = noted});
  f(r.ms, {.name = "ms", .role = noted});
  f(r.kernel, {.name = "kernel"});
  f(r.op, {.name = "op"});
  f(r.part, {.name = "part"});
  f(r.module, {.name = "module"});
  f(r.layer, {.name = "layer"});
  f(r.phase, {.name = "phase"});
  f(r.stream, {.name = "stream"});
  f(r.step, {.name = "step"});
}

struct MomentRow {  // a take or a give
  double at_ms = 0;
  std::int64_t live_bytes = 0, bytes = 0;
  std::string name, shape, phase;
};
void describe(Of<MomentRow> auto& r, auto&& f) {
  using enum Role;
  f(r.at_ms, {.name = "at_ms", .role = noted});
  f(r.live_bytes, {.name = "live_bytes", .role = noted, .unit = Unit::bytes});
  f(r.bytes, {.name = "bytes", .role = noted});
  f(r.name, {.name = "name"});
  f(r.shape, {.name = "shape"});
  f(r.phase, {.name = "phase"});
}

struct RankRow {  // one of several ranks in a step, on the mean
  std::int64_t rank = 0;
  double step_ms = 0, work_ms = 0, collectives_ms = 0;
  double exposed_ms = 0;  // collectives, and waits just before and after them, while nothing else ran
  double link_bytes = 0;
  std::int64_t peak_bytes = 0, forecast_peak_bytes = 0;
};
void describe(Of<RankRow> auto& r, auto&& f) {
  using enum Role;
  f(r.rank, {.name = "rank"});
  f(r.step_ms, {.name = "step_ms", .role = measured, .unit = Unit::ms});
  f(r.work_ms, {.name = "work_ms", .role = measured, .unit = Unit::ms});
  f(r.collectives_ms, {.name = "collectives_ms", .role = measured, .unit = Unit::ms});
  f(r.exposed_ms, {.name = "exposed_ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
  f(r.link_bytes, {.name = "link_bytes", .role = noted, .unit = Unit::bytes});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.forecast_peak_bytes, {.name = "forecast_peak_bytes", .role = measured, .unit = Unit::bytes});
}

struct LaneRow {  // in the last step of a rank: a collective, or the work between two
  std::int64_t rank = 0, stream = 0;
  double start_ms = 0, ms = 0;  // since that rank's step began
  std::string what{};
  std::optional<std::int64_t> layer{};
  double link_bytes = 0;
};
void describe(Of<LaneRow> auto& r, auto&& f) {
  using enum Role;
  f(r.rank, {.name = "rank"});
  f(r.stream, {.name = "stream"});
  f(r.start_ms, {.name = "start_ms", .role = noted, .unit = Unit::ms});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
  f(r.what, {.name = "what"});
  f(r.layer, {.name = "layer"});
  f(r.link_bytes, {.name = "link_bytes", .role = noted, .unit = Unit::bytes});
}

struct StandingRow {  // a tensor that is live at the peak
  std::string name, shape, dtype;
  std::int64_t bytes = 0;
  std::string phase;
};
void describe(Of<StandingRow> auto& r, auto&& f) {
  f(r.name, {.name = "name"});
  f(r.shape, {.name = "shape"});
  f(r.dtype, {.name = "dtype"});
  f(r.bytes, {.name = "bytes", .role = Role::measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.phase, {.name = "phase"});
}

}  // namespace headroom::studies
