// The measured ceilings of a machine: how fast it copies and multiplies. MFU and rooflines are relative to them.
#pragma once
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/described.h"
#include "base/device.h"
#include "instruments/bench/bench.h"

namespace headroom::studies {

struct CeilingRow {
  std::string what, dtype;  // "copy", "matmul", or between a card and pinned host memory: "to host", "from host", "both ways"
  std::int64_t size = 0;    // bytes of one side of the copy, or each way; n of an n³ product
  bench::Stats ms{};        // not a column: its mean and spread are
  std::optional<double> copy_bytes_per_s{};  // read plus written
  std::optional<double> host_bytes_per_s{};  // each way
  std::optional<double> flops_per_s{};
  std::optional<double> time_ms{}, time_ms_std{};
  std::int64_t steps = 0;
  std::optional<std::int64_t> sm_mhz{};  // a GPU's clock under this load
  std::string held_back{};               // the reason for a clock below its highest
};

void describe(Of<CeilingRow> auto& r, auto&& f) {
  using enum Role;
  f(r.what, {.name = "what"});
  f(r.dtype, {.name = "dtype"});
  f(r.size, {.name = "size"});
  f(r.copy_bytes_per_s, {.name = "copy_bytes_per_s", .role = noted, .unit = Unit::bytes_per_s});
  f(r.host_bytes_per_s, {.name = "host_bytes_per_s", .role = noted, .unit = Unit::bytes_per_s, .show = Show::detail});
  f(r.flops_per_s, {.name = "flops_per_s", .role = noted, .unit = Unit::flops});
  f(r.time_ms, {.name = "time_ms", .role = measured, .unit = Unit::ms});
  f(r.time_ms_std, {.name = "time_ms_std", .role = noted, .unit = Unit::ms});
  f(r.steps, {.name = "steps", .role = noted});
  f(r.sm_mhz, {.name = "sm_mhz", .role = noted, .show = Show::detail});
  f(r.held_back, {.name = "held_back", .role = noted, .show = Show::detail});
}

struct MeasuredCeilings {
  std::vector<CeilingRow> rows;
  Ceilings ceilings;                // the best of the rows
  std::string how;                  // what the rate measures
  std::string without_host_link{};  // why it was not measured; empty: it was
};

// A few seconds. On the CPU a rate is of the fastest sample: what the machine can do when nothing disturbs it. On a GPU it is of the
// median: under full load a card lowers its clocks, and what it sustains is what a step can have.
MeasuredCeilings measure_ceilings(const Device&, const bench::Protocol&, const std::function<bool()>& stop);

// The rate of the slower direction, alone: blocks that keep on the host send in forward and fetch in backward. Empty if no row has it.
std::optional<double> host_link_of(const std::vector<CeilingRow>&);

// How every study times a GPU, for people to read beside the numbers.
constexpr const char* gpu_timing =
    "events on the stream around a CUDA graph of as many calls as last 0.5 ms (64 at most), launched while the card is busy: no gaps of "
    "the "
    "host are counted; caches are as the previous call left them";

Ceilings best_of(const std::vector<CeilingRow>&);

}  // namespace headroom::studies
