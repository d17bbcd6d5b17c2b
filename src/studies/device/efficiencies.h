// Steps of small models, each of which says much of one kind of work, and what follows from them for the time of any step
// (engine/forecast/expected.h). Measured by `headroom device --efficiencies`.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "base/efficiency.h"
#include "studies/step/step_time.h"

namespace headroom::studies {

struct EfficiencyStep {  // a step that was measured
  std::string what = "step", model;
  std::int64_t width = 0, layers = 0, heads = 0, kv_heads = 0, ffn = 0, vocab = 0;
  std::int64_t batch = 0, len = 0;
  Precision precision{};
  engine::Purpose phase = engine::Purpose::training;
  double ms = 0, ms_std = 0;
  double forecast_ms = 0, forecast = 0;  // forecast from the steps of all other models; its ratio to the measured time
};
void describe(Of<EfficiencyStep> auto& s, auto&& f) {
  using enum Role;
  f(s.what, {.name = "what", .show = Show::detail});
  f(s.model, {.name = "model"});
  f(s.width, {.name = "width", .show = Show::detail});
  f(s.layers, {.name = "layers", .show = Show::detail});
  f(s.heads, {.name = "heads", .show = Show::detail});
  f(s.kv_heads, {.name = "kv_heads", .show = Show::detail});
  f(s.ffn, {.name = "ffn", .show = Show::detail});
  f(s.vocab, {.name = "vocab", .show = Show::detail});
  f(s.batch, {.name = "batch"});
  f(s.len, {.name = "len"});
  f(s.precision, {.name = "precision"});
  f(s.phase, {.name = "phase"});
  f(s.ms, {.name = "ms", .role = measured, .unit = Unit::ms});
  f(s.ms_std, {.name = "ms_std", .role = noted, .unit = Unit::ms, .show = Show::spread});
  f(s.forecast_ms, {.name = "forecast_ms", .role = noted, .unit = Unit::ms});
  f(s.forecast, {.name = "forecast", .role = noted, .unit = Unit::ratio});
}

engine::Recipe recipe_of(const EfficiencyStep&);

struct EfficiencyRow {  // the fit of all steps
  std::string what = "efficiency";
  Efficiency efficiency;
  bool of_kernels = false, of_units = false;  // Efficiency's: rows of older versions are not
};
void describe(Of<EfficiencyRow> auto& r, auto&& f) {
  f(r.what, {.name = "what", .show = Show::detail});
  f(r.of_kernels, {.name = "of_kernels", .show = Show::detail});
  f(r.of_units, {.name = "of_units", .show = Show::detail});
  describe(r.efficiency, f);
}

struct MeasuredEfficiencies {
  std::vector<EfficiencyStep> steps;
  std::vector<EfficiencyRow> by_precision;  // empty where it was stopped
  std::vector<std::string> left_out;        // steps that this machine has no memory for, or cannot take, in words
};

struct EfficienciesAsked {
  std::vector<Precision> precisions;
  bench::Protocol protocol;  // for each step
};
EfficienciesAsked usual_efficiencies(const Device&);  // the precisions of the recorded H200, or of a CPU; a minute or two

// Ceilings: what the steps' rooflines are made of.
MeasuredEfficiencies measure_efficiencies(const Device&, const Ceilings&, const EfficienciesAsked&, const std::function<bool()>& stop,
                                          const std::function<void(double share, const std::string& doing)>& progress);

}  // namespace headroom::studies
