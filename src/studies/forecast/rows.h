// The rows of a forecast. A measured run of the same program (forecast --check, profile -- COMMAND) writes the same names.
#pragma once
#include <optional>
#include <string>

#include "report/described_table.h"
#include "store/described_json.h"
#include "studies/status.h"

namespace headroom::studies {

// One program, run once: dry, or for real. The numbers of its ranks' largest.
struct ForecastRow {
  std::string program;
  std::string setting;  // "batch=8"; empty where nothing is varied
  std::string change;   // the change of --try; empty: none
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0, beside_bytes = 0, needed_bytes = 0, memory_bytes = 0;
  std::optional<bool> fits{};                              // high_bytes decides; nothing where the program was not seen to its end
  std::optional<std::uint64_t> low_bytes{}, high_bytes{};  // the interval of needed_bytes on a card; no high: no bound is known
  std::optional<std::uint64_t> allowed_bytes{};            // what the program lets PyTorch reserve, by a fraction of its own
  std::optional<double> ms{}, ms_low{}, ms_high{};
  std::string time_why, time_limit;  // why there are no ms; what limits the step
  std::optional<std::uint64_t> step_allocated_bytes{}, saved_bytes{}, fragmented_bytes{}, host_bytes{};
  std::optional<std::uint64_t> pinned_bytes{},
      managed_bytes{};  // host memory of all processes, pinned and unified; empty where none is taken
  std::optional<std::int64_t> steps{};
  bool to_its_end = true;  // the program ended by itself; else the forecast ended it, or it failed or was stopped
  std::int64_t ranks = 1, unknown_values = 0, accepted_functions = 0;
  Status status = Status::ok;
  std::string why, line, device, source = "dry";
};
void describe(Of<ForecastRow> auto& r, auto&& f) {
  using enum Role;
  using enum Unit;
  f(r.program, {.name = "program", .role = varied, .show = Show::detail});
  f(r.setting, {.name = "setting"});
  f(r.change, {.name = "change"});
  f(r.fits, {.name = "fits", .role = measured});
  f(r.peak_allocated_bytes, {.name = "peak_allocated_bytes", .role = measured, .unit = bytes, .show = Show::bar});
  f(r.peak_reserved_bytes, {.name = "peak_reserved_bytes", .role = measured, .unit = bytes});
  f(r.beside_bytes, {.name = "beside_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = bytes});
  f(r.memory_bytes, {.name = "memory_bytes", .role = noted, .unit = bytes});
  f(r.low_bytes, {.name = "low_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.high_bytes, {.name = "high_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.allowed_bytes, {.name = "allowed_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_low, {.name = "ms_low", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_high, {.name = "ms_high", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.time_why, {.name = "time_why", .role = noted, .show = Show::detail});
  f(r.time_limit, {.name = "time_limit", .role = noted, .show = Show::detail});
  f(r.step_allocated_bytes, {.name = "step_allocated_bytes", .role = measured, .unit = bytes, .show = Show::detail});
  f(r.saved_bytes, {.name = "saved_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.fragmented_bytes, {.name = "fragmented_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.host_bytes, {.name = "host_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.pinned_bytes, {.name = "pinned_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.managed_bytes, {.name = "managed_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.steps, {.name = "steps", .role = noted, .show = Show::detail});
  f(r.to_its_end, {.name = "to_its_end", .role = noted, .show = Show::detail});
  f(r.ranks, {.name = "ranks", .role = noted, .show = Show::detail});
  f(r.unknown_values, {.name = "unknown_values", .role = noted, .show = Show::detail});
  f(r.accepted_functions, {.name = "accepted_functions", .role = noted, .show = Show::detail});
  f(r.status, {.name = "status", .role = measured});
  f(r.why, {.name = "why", .role = noted, .show = Show::detail});
  f(r.line, {.name = "line", .role = noted, .show = Show::detail});
  f(r.device, {.name = "device", .role = noted, .show = Show::detail});
  f(r.source, {.name = "source", .role = noted, .show = Show::detail});
}

// A rank of it: a process on a card.
struct ForecastRankRow {
  std::int64_t rank = 0, card = 0;
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0, beside_bytes = 0, needed_bytes = 0;
  std::optional<bool> fits{};
  std::optional<std::uint64_t> low_bytes{}, high_bytes{};
  std::optional<std::uint64_t> step_allocated_bytes{}, fragmented_bytes{};
  std::optional<std::int64_t> steps{};
  std::string line;  // a line that allocated at the peak
};
void describe(Of<ForecastRankRow> auto& r, auto&& f) {
  using enum Role;
  using enum Unit;
  f(r.rank, {.name = "rank"});
  f(r.card, {.name = "card", .role = noted});
  f(r.peak_allocated_bytes, {.name = "peak_allocated_bytes", .role = measured, .unit = bytes, .show = Show::bar});
  f(r.peak_reserved_bytes, {.name = "peak_reserved_bytes", .role = measured, .unit = bytes});
  f(r.beside_bytes, {.name = "beside_bytes", .role = noted, .unit = bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = bytes});
  f(r.fits, {.name = "fits", .role = measured});
  f(r.low_bytes, {.name = "low_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.high_bytes, {.name = "high_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.step_allocated_bytes, {.name = "step_allocated_bytes", .role = measured, .unit = bytes, .show = Show::detail});
  f(r.fragmented_bytes, {.name = "fragmented_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.steps, {.name = "steps", .role = noted, .show = Show::detail});
  f(r.line, {.name = "line", .role = noted, .show = Show::detail});
}

struct ForecastPhaseRow {
  std::int64_t rank = 0;
  std::string phase;
  std::int64_t count = 0;
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0, end_bytes = 0;
};
void describe(Of<ForecastPhaseRow> auto& r, auto&& f) {
  using enum Role;
  using enum Unit;
  f(r.rank, {.name = "rank"});
  f(r.phase, {.name = "phase"});
  f(r.count, {.name = "count", .role = noted});
  f(r.peak_allocated_bytes, {.name = "peak_allocated_bytes", .role = measured, .unit = bytes, .show = Show::bar});
  f(r.peak_reserved_bytes, {.name = "peak_reserved_bytes", .role = measured, .unit = bytes});
  f(r.end_bytes, {.name = "end_bytes", .role = measured, .unit = bytes});
}

// Blocks that are allocated at the peak, or saved for backward; what they are, and which line allocated them.
struct ForecastBlockRow {
  std::int64_t rank = 0;
  std::string what, module, line;
  std::uint64_t bytes = 0;
  double share = 0;
  std::int64_t blocks = 0;
};
void describe(Of<ForecastBlockRow> auto& r, auto&& f) {
  using enum Role;
  f(r.rank, {.name = "rank"});
  f(r.what, {.name = "what"});
  f(r.module, {.name = "module"});
  f(r.line, {.name = "line"});
  f(r.bytes, {.name = "bytes", .role = measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share});
  f(r.blocks, {.name = "blocks", .role = noted});
}

struct ForecastTimeRow {  // a part of a step's time; parts that run beside each other add up to more than the step
  std::int64_t rank = 0;
  std::string part;
  double ms = 0, share = 0, count = 0;
};
void describe(Of<ForecastTimeRow> auto& r, auto&& f) {
  using enum Role;
  f(r.rank, {.name = "rank"});
  f(r.part, {.name = "part"});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms, .show = Show::bar});
  f(r.share, {.name = "share", .role = noted, .unit = Unit::share});
  f(r.count, {.name = "count", .role = noted});
}

// What a step gives to the card, in order, and how long each is forecast to take. `headroom compare` holds it against a profile's kernels.
struct ForecastLaunchRow {
  std::int64_t rank = 0;
  std::string kernel, kind, shape;
  std::int64_t stream = 0;
  double us = 0;
};
void describe(Of<ForecastLaunchRow> auto& r, auto&& f) {
  using enum Role;
  f(r.rank, {.name = "rank"});
  f(r.kernel, {.name = "kernel"});
  f(r.kind, {.name = "kind"});
  f(r.shape, {.name = "shape"});
  f(r.stream, {.name = "stream"});
  f(r.us, {.name = "us", .role = noted});
}

struct ForecastMomentRow {  // a point of the curve: the most within a piece of the run
  std::int64_t rank = 0;
  double at_ms = 0;
  std::string phase;
  std::uint64_t allocated_bytes = 0, reserved_bytes = 0;
};
void describe(Of<ForecastMomentRow> auto& r, auto&& f) {
  using enum Role;
  using enum Unit;
  f(r.rank, {.name = "rank"});
  f(r.at_ms, {.name = "at_ms", .role = noted});
  f(r.phase, {.name = "phase"});
  f(r.allocated_bytes, {.name = "allocated_bytes", .role = noted, .unit = bytes});
  f(r.reserved_bytes, {.name = "reserved_bytes", .role = noted, .unit = bytes});
}

struct ForecastStepRow {
  std::int64_t rank = 0, step = 0;
  std::uint64_t peak_allocated_bytes = 0, peak_reserved_bytes = 0;
  std::optional<std::uint64_t> reserved_low_bytes{}, reserved_high_bytes{};  // with segments at other addresses
};
void describe(Of<ForecastStepRow> auto& r, auto&& f) {
  using enum Role;
  using enum Unit;
  f(r.rank, {.name = "rank"});
  f(r.step, {.name = "step"});
  f(r.peak_allocated_bytes, {.name = "peak_allocated_bytes", .role = measured, .unit = bytes, .show = Show::bar});
  f(r.peak_reserved_bytes, {.name = "peak_reserved_bytes", .role = measured, .unit = bytes});
  f(r.reserved_low_bytes, {.name = "reserved_low_bytes", .role = noted, .unit = bytes, .show = Show::detail});
  f(r.reserved_high_bytes, {.name = "reserved_high_bytes", .role = noted, .unit = bytes, .show = Show::detail});
}

struct UnknownValueRow {  // the program read what is not known without a card
  std::string line;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;
};
void describe(Of<UnknownValueRow> auto& r, auto&& f) {
  using enum Role;
  f(r.line, {.name = "line"});
  f(r.count, {.name = "count", .role = noted});
  f(r.bytes, {.name = "bytes", .role = noted, .unit = Unit::bytes});
}

constexpr const char *workspace_taken_as_nothing = "workspace taken as 0", *workspace_by_a_formula = "workspace by a formula",
                     *workspace_as_measured = "workspace as a card said", *workspace_by_the_library = "workspace as without a card",
                     *workspace_of_another_version = "workspace as of cuDNN 9.19";
struct OnlyAcceptedRow {  // a function that was not answered as a card would
  std::string function, what, line;
  std::int64_t count = 0;
  std::uint64_t bytes = 0;  // more or less than is counted; what may take more without a bound has none

  bool may_take_more() const { return what == workspace_taken_as_nothing || what == workspace_by_a_formula; }
};
void describe(Of<OnlyAcceptedRow> auto& r, auto&& f) {
  using enum Role;
  f(r.function, {.name = "function"});
  f(r.what, {.name = "what", .role = noted});
  f(r.line, {.name = "line", .role = noted});
  f(r.count, {.name = "count", .role = noted});
  f(r.bytes, {.name = "bytes", .role = noted, .unit = Unit::bytes});
}

struct SaidRow {  // what a process's observer changed, could not change, or has to say: replaced, cannot, note
  std::string what, text;
};
void describe(Of<SaidRow> auto& r, auto&& f) {
  f(r.what, {.name = "what"});
  f(r.text, {.name = "text"});
}

}  // namespace headroom::studies
