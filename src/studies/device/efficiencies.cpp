#include "studies/device/efficiencies.h"

#include <algorithm>
#include <cmath>

#include "base/threads.h"
#include "engine/forecast/fit.h"
#include "engine/model/plain_model.h"
#include "studies/step/step_rows.h"

namespace headroom::studies {

namespace {

// Each kind of work dominates at least two models, so that each model can be forecast from the others.
struct Model {
  const char* name;  // what it says most of
  std::int64_t width, layers, heads, kv_heads, ffn, vocab, batch, len;
};

constexpr Model of_a_gpu[] = {
    {"ops", 256, 4, 4, 4, 1024, 8192, 1, 128},
    {"ops, more", 512, 6, 8, 8, 2048, 4096, 1, 64},
    {"short", 1024, 6, 16, 16, 4096, 10000, 4, 128},
    {"narrow", 768, 4, 12, 12, 3072, 10000, 4, 512},
    {"odd heads", 1600, 3, 25, 25, 6400, 10000, 4, 256},
    {"ordinary", 1280, 4, 20, 20, 5120, 10000, 4, 1024},
    {"heads of 80", 2560, 2, 32, 32, 10240, 10000, 4, 1024},
    {"wide", 4096, 1, 32, 8, 14336, 32000, 2, 1024},
    {"wide, short", 4096, 1, 32, 32, 11008, 10000, 1, 512},
    {"attention, heads of 64", 512, 2, 8, 8, 512, 1000, 1, 16384},
    {"attention, heads of 64, batch", 1024, 1, 16, 4, 1024, 1000, 4, 4096},
    {"attention, heads of 128", 1024, 2, 8, 8, 1024, 1000, 2, 8192},
    {"attention, heads of 128, batch", 2048, 1, 16, 4, 2048, 1000, 4, 4096},
    {"loss", 256, 1, 4, 4, 1024, 50304, 8, 1024},
    {"loss, narrow", 128, 1, 2, 2, 512, 32000, 8, 1024},
    {"elementwise", 128, 2, 2, 2, 2048, 512, 32, 1024},
    {"elementwise, wide", 256, 1, 4, 4, 8192, 512, 16, 1024},
    {"update", 2048, 4, 16, 16, 8192, 10000, 1, 128},
    {"update, vocabulary", 1024, 1, 16, 16, 4096, 128256, 1, 512},
};

constexpr Model of_a_cpu[] = {
    {"ops", 128, 4, 4, 4, 512, 1024, 2, 64},
    {"ordinary", 256, 2, 4, 4, 1024, 2048, 4, 128},
    {"deep", 320, 3, 5, 5, 1280, 2000, 2, 128},
    {"wide", 512, 1, 8, 8, 2048, 1024, 2, 256},
    {"grouped", 384, 2, 6, 2, 1024, 4096, 1, 256},
    {"heads of 128", 512, 1, 4, 4, 1024, 1000, 1, 256},
    {"long", 256, 2, 4, 4, 1024, 1000, 1, 1024},
    {"attention, heads of 64", 128, 1, 2, 2, 128, 256, 1, 2048},
    {"attention, heads of 64, batch", 64, 2, 1, 1, 64, 256, 4, 1024},
    {"attention, heads of 128", 256, 1, 2, 2, 256, 256, 2, 1024},
    {"attention, heads of 128, long", 128, 1, 1, 1, 128, 256, 1, 2048},
    {"loss", 64, 1, 1, 1, 64, 32000, 4, 128},
    {"loss, narrow", 32, 1, 1, 1, 32, 16384, 8, 128},
    {"elementwise", 64, 2, 2, 2, 256, 256, 8, 256},
    {"elementwise, wide", 32, 2, 1, 1, 512, 256, 8, 256},
    {"update", 1024, 1, 16, 16, 4096, 1024, 1, 8},
    {"update, vocabulary", 512, 1, 8, 8, 1024, 16384, 1, 16},
};

constexpr double least_within = 1.1;  // steps of other models than those measured here were seen to lie within

std::vector<EfficiencyStep> steps_of(const Device& device, Precision precision) {
  std::vector<EfficiencyStep> steps;
  const auto add = [&](const Model& m) {
    for (const engine::Purpose phase : {engine::Purpose::forward, engine::Purpose::training})
      steps.push_back({.model = m.name,
                       .width = m.width,
                       .layers = m.layers,
                       .heads = m.heads,
                       .kv_heads = m.kv_heads,
                       .ffn = m.ffn,
                       .vocab = m.vocab,
                       .batch = m.batch,
                       .len = m.len,
                       .precision = precision,
                       .phase = phase});
  };
  if (device.kind == DeviceKind::cuda)
    std::for_each(std::begin(of_a_gpu), std::end(of_a_gpu), add);
  else
    std::for_each(std::begin(of_a_cpu), std::end(of_a_cpu), add);
  return steps;
}

double either_way(double ratio) { return std::max(ratio, 1 / ratio); }

}  // namespace

engine::Recipe recipe_of(const EfficiencyStep& s) {
  const engine::PlainModel sizes{.name = s.model,
                                 .vocab = s.vocab,
                                 .width = s.width,
                                 .layers = s.layers,
                                 .heads = s.heads,
                                 .kv_heads = s.kv_heads,
                                 .head_dim = s.width / s.heads,
                                 .ffn = s.ffn};
  return engine::recipe_of(decoder_of(sizes), s.batch, s.len, {.precision = s.precision}, s.phase);
}

EfficienciesAsked usual_efficiencies(const Device& device) {
  if (device.kind == DeviceKind::cpu) return {{{DType::f32}}, {.warmup = 2, .steps = 12, .seconds = 1}};
  return {{{DType::f32}, {DType::bf16}}, {.warmup = 2, .steps = 30, .seconds = 0.3}};
}

MeasuredEfficiencies measure_efficiencies(const Device& device, const Ceilings& ceilings, const EfficienciesAsked& asked,
                                          const std::function<bool()>& stop,
                                          const std::function<void(double share, const std::string& doing)>& progress) {
  const bool gpu = device.kind == DeviceKind::cuda;
  StepTime settings;
  settings.steps = asked.protocol.steps, settings.seconds = asked.protocol.seconds, settings.matmul_flops = ceilings.fp32_flops;
  settings.threads = gpu ? 1 : std::max(1, available_cores());
  Device measured = device;
  measured.ceilings = ceilings;
  MeasuredEfficiencies m;
  StepRows rows(settings, measured, stop);
  std::size_t done = 0;
  for (const Precision precision : asked.precisions) {
    if (ceilings.of(precision) <= 0) {
      m.left_out.push_back(fmt::format("{}: no ceiling of it was measured", name_of(precision)));
      continue;
    }
    const auto wanted = steps_of(device, precision);
    std::vector<engine::StepMeasured> steps;
    const std::size_t first = m.steps.size();
    for (EfficiencyStep s : wanted) {
      if (stop()) return m;
      progress(double(done++) / double(wanted.size() * asked.precisions.size()),
               fmt::format("step of a model for {}, {} {}", s.model, name_of(precision), name_of(s.phase)));
      const engine::Recipe recipe = recipe_of(s);
      const StepRow row = rows.measured_row({recipe, asked.protocol.warmup});
      if (row.status == Status::interrupted) return m;
      if (row.samples.count == 0) {
        m.left_out.push_back(fmt::format("{} {} {}: {}", s.model, name_of(precision), name_of(s.phase), row.why));
        continue;
      }
      s.ms = gpu ? row.samples.median : row.samples.min, s.ms_std = row.samples.std;  // as ceilings are measured
      steps.push_back({recipe, s.ms});
      m.steps.push_back(std::move(s));
    }
    const auto forecast = engine::foretold_by_others(precision, steps, ceilings, device, settings.threads);
    double within = least_within;
    for (std::size_t i = 0; i < steps.size(); ++i) {
      EfficiencyStep& s = m.steps[first + i];
      s.forecast_ms = forecast[i], s.forecast = forecast[i] / s.ms;
      within = std::max(within, either_way(s.forecast));
    }
    if (steps.empty()) continue;
    EfficiencyRow row{.efficiency = engine::fitted(precision, steps, ceilings, device, settings.threads), .of_kernels = true};
    row.of_units = row.efficiency.of_units;
    row.efficiency.within = std::ceil(within * 100) / 100;
    m.by_precision.push_back(row);
  }
  return m;
}

}  // namespace headroom::studies
