// plan --as pytorch: the settings of PyTorch's training step that fit, before a run of torchtitan or a program like it.
#pragma once
#include "pytorch/language_model.h"
#include "studies/plan/plan.h"

namespace headroom::studies {

struct PyTorchPlanRow {
  std::uint64_t needed_bytes = 0;
  engine::Keeping keep{};
  pytorch::Compile compile{};
  Precision precision;
  std::int64_t micro_batch = 0, micro_batches = 0;
  engine::Sharding shard{};
  std::uint64_t peak_bytes = 0, reserved_bytes = 0;
  std::int64_t gpus = 1;
  std::uint64_t at_most_bytes = 0;
};
void describe(Of<PyTorchPlanRow> auto& r, auto&& f) {
  using enum Role;
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes, .show = Show::bar});
  f(r.keep, {.name = "keep"});
  f(r.compile, {.name = "compile"});
  f(r.precision, {.name = "precision"});
  f(r.micro_batch, {.name = "micro_batch"});
  f(r.micro_batches, {.name = "micro_batches"});
  f(r.shard, {.name = "shard"});
  f(r.peak_bytes, {.name = "peak_bytes", .role = measured, .unit = Unit::bytes});
  f(r.reserved_bytes, {.name = "reserved_bytes", .role = measured, .unit = Unit::bytes});
  f(r.gpus, {.name = "gpus", .show = Show::detail});
  f(r.at_most_bytes, {.name = "at_most_bytes", .role = noted, .unit = Unit::bytes, .show = Show::detail});
}

struct PyTorchWayRow {  // what is trained, with which optimizer, and the least other options that fit
  std::string way;
  std::uint64_t needed_bytes = 0, smallest_bytes = 0;  // with these options; with those that need least
  bool fits = false;
  std::optional<double> ms{};  // none: why is in ms_by
  std::string with;
  std::uint64_t host_bytes = 0;
  bool checked = false;  // steps with all of its choices were measured on a card
  std::optional<double> ms_low{}, ms_high{};
  std::string ms_by{};
  std::uint64_t at_most_bytes = 0;  // other programs' peak
};
void describe(Of<PyTorchWayRow> auto& r, auto&& f) {
  using enum Role;
  f(r.way, {.name = "way"});
  f(r.smallest_bytes, {.name = "smallest_bytes", .role = measured, .unit = Unit::bytes});
  f(r.needed_bytes, {.name = "needed_bytes", .role = measured, .unit = Unit::bytes});
  f(r.fits, {.name = "fits", .role = measured});
  f(r.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(r.with, {.name = "with", .role = noted});
  f(r.host_bytes, {.name = "host_bytes", .role = measured, .unit = Unit::bytes, .show = Show::detail});
  f(r.checked, {.name = "checked", .role = noted, .show = Show::detail});
  f(r.ms_low, {.name = "ms_low", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_high, {.name = "ms_high", .role = noted, .unit = Unit::ms, .show = Show::detail});
  f(r.ms_by, {.name = "ms_by", .role = noted, .show = Show::detail});
  f(r.at_most_bytes, {.name = "at_most_bytes", .role = noted, .unit = Unit::bytes, .show = Show::detail});
}

Outcome plan_as_pytorch(const Plan&);

}  // namespace headroom::studies
