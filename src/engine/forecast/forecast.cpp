#include "engine/forecast/forecast.h"

#include <algorithm>
#include <array>
#include <set>
#include <tuple>

#include "base/interrupt.h"
#include "dist/dry.h"
#include "engine/forecast/trace.h"
#include "engine/model/params.h"
#include "engine/pass/training.h"

namespace headroom::engine {

namespace {

void add_memory(const Trace& t, ForecastTotals& f) {
  std::array<std::size_t, phase_count> by_phase{};
  std::vector<const Trace::Moved*> live;
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < t.moved.size(); ++i) {
    if (i == t.standing) f.standing_bytes = bytes;
    const Trace::Moved& m = t.moved[i];
    const Trace::Moved& tensor = m.ends ? *live.back() : m;
    std::size_t& of_phase = by_phase[std::size_t(tensor.phase)];
    if (m.ends) {
      bytes -= tensor.taken, of_phase -= tensor.taken;
      live.pop_back();  // an arena is a stack: the newest tensor ends first
      continue;
    }
    bytes += m.taken, of_phase += m.taken;
    live.push_back(&m);
    if (bytes > f.peak_bytes) f.peak_bytes = bytes, f.peak_bytes_by_phase = by_phase;
  }
  if (t.standing == t.moved.size()) f.standing_bytes = bytes;
}

// The second of many micro-batches stands for `like_it` more.
double like_second(const Recipe& r) { return std::max(0, r.micro_batches - 3); }

double link_ms_of(const Trace& t, const Recipe& r) {
  double sum = 0, begin = 0, end = 0;
  for (std::size_t i = 0; i <= t.calls.size(); ++i) {
    if (i == t.second_calls.begin) begin = sum;
    if (i == t.second_calls.end) end = sum;
    if (i < t.calls.size()) sum += t.calls[i].link_ms;
  }
  return sum + like_second(r) * (end - begin);
}

// Calls body(index of an op's kind, how often it runs) in the order of the ops.
template <class Body>
void each_op(const Trace& t, const Recipe& r, Body&& body) {
  for (std::size_t i = 0; i < t.ops.size(); ++i) body(t.ops[i], i >= t.second_ops.begin && i < t.second_ops.end ? 1 + like_second(r) : 1.0);
}

// What a call to another card takes beside its bytes: kernels up to a mebibyte, copies by the copy engines from there on. Of two H100 and of two H200
// (bench/results/h100_comm_two_gpus_2026-11-28.csv).
double call_begins_ms(const dist::Sent& s) {
  return s.bytes < (std::size_t(1) << 20) ? 7.5e-3 + 3e-3 * double(s.bytes) / double(std::size_t(1) << 20) : 18e-3;
}

void add_times(const Trace& t, const Recipe& recipe, const Device& device, ForecastTotals& f) {
  const auto in_order = [&](auto&& ms_of) {
    std::vector<double> of_kind, ms;
    for (const OpCall& s : t.kinds) of_kind.push_back(ms_of(s));
    ms.reserve(t.ops.size());
    for (const std::uint32_t op : t.ops) ms.push_back(of_kind[op]);
    return ms;
  };
  const OpTimesOrWhy times = op_times(recipe, device);
  const auto step_ms =
      in_order([&](const OpCall& s) { return s.cost.link_bytes > 0 ? 0 : least_ms(s, recipe, device.ceilings, times.times); });
  double walked_link_ms = 0;
  for (const dist::Sent& s : t.calls) walked_link_ms += s.link_ms;
  f.link_ms = link_ms_of(t, recipe);
  const dist::Exposed exposed = dist::exposed_ms(t.calls, t.joints, step_ms);
  const double of_link = walked_link_ms > 0 ? f.link_ms / walked_link_ms : 1;
  f.exposed_ms = exposed.link_ms * of_link;
  LinkTime waits{f.link_ms};
  if (times.times) {  // longer than at their ceilings, ops hide more of what the links do
    const auto expected = in_order([&](const OpCall& s) { return expected_ms(s, recipe, *times.times); });
    const dist::Exposed beside = dist::exposed_ms(t.calls, t.joints, expected, device.kind == DeviceKind::cuda ? call_begins_ms : nullptr);
    waits.exposed_ms = beside.link_ms * of_link;
    waits.host_exposed_ms = beside.other_ms;
  }
  if (t.on_host) {
    const int micros = recipe.micro_batches;
    const double of_walked = double(micros) / double(std::min(micros, 3)), rate = device.ceilings.host_bytes_per_s;
    f.host_bytes = t.host_bytes;
    f.host_moved_bytes = t.host_moved_bytes * of_walked;
    f.host_ms = (rate > 0 ? 1e3 * t.host_moved_bytes / rate : 0) * of_walked;
    f.host_exposed_ms = exposed.other_ms * of_walked;
    waits.host_ms = f.host_ms;
    waits.host_exposed_ms *= of_walked;
  }
  for (const double ms : step_ms) f.ms += ms;
  for (std::size_t i = t.second_ops.begin; i < t.second_ops.end; ++i) f.ms += like_second(recipe) * step_ms[i];
  f.ms += f.exposed_ms + f.host_exposed_ms;
  f.why_no_ms = times.why;
  if (!times.times) return;
  std::vector<double> often_of(t.kinds.size());
  each_op(t, recipe, [&](std::uint32_t kind, double often) { often_of[kind] += often; });
  Composition ops;
  for (std::size_t i = 0; i < t.kinds.size(); ++i) ops.add(t.kinds[i], recipe, *times.times, often_of[i]);
  f.expected = expected_time(ops, waits, *times.times, f.ms);
}

void add_totals(const Trace& t, const Recipe& recipe, const Device& device, ForecastTotals& f) {
  add_memory(t, f);
  add_times(t, recipe, device, f);
  each_op(t, recipe, [&](std::uint32_t kind, double often) {
    const OpCall& s = t.kinds[kind];
    f.flops += s.times * often * s.cost.flops;
    f.bytes += s.times * often * s.cost.bytes;
    f.link_bytes += s.times * often * s.cost.link_bytes;
  });
  if (device.ceilings.copy_bytes_per_s <= 0 || device.ceilings.of(recipe.precision) <= 0 ||
      (f.link_bytes > 0 && device.ceilings.link_bytes_per_s <= 0) ||
      (f.host_moved_bytes > 0 && f.host_ms <= 0 && device.kind == DeviceKind::cuda))
    f.ms = 0;
  if (f.ms <= 0 && f.expected) {
    f.expected.reset();
    f.why_no_ms = "a ceiling that the step needs is not known";
  }
}

}  // namespace

double roofline_ms(const OpCall& s, Precision of_model, const Ceilings& ceilings) {
  Precision p = s.precision;
  if (p.dtype == DType::f32) p.math = of_model.math;
  const int products = s.cost.on_card.tf32_products;
  const double rate = products > 0 && ceilings.tf32_flops > 0 ? ceilings.tf32_flops / products : ceilings.of(p);
  const double arithmetic = rate > 0 ? s.cost.flops / rate : 0,
               traffic = ceilings.copy_bytes_per_s > 0 ? s.cost.bytes / ceilings.copy_bytes_per_s : 0,
               link = ceilings.link_bytes_per_s > 0 ? s.cost.link_bytes / ceilings.link_bytes_per_s : 0;
  return 1e3 * std::max({arithmetic, traffic, link});
}

double least_ms(const OpCall& s, const Recipe& r, const Ceilings& ceilings, const std::optional<OpTimes>& expected) {
  const double at_ceilings = s.times * roofline_ms(s, r.precision, ceilings);
  return expected && s.cost.link_bytes <= 0 ? std::min(at_ceilings, expected_ms(s, r, *expected)) : at_ceilings;
}

double model_flops(const Recipe& r) {
  double multiplied = 0, attention = 0;
  for (const ParamSpec& s : param_table(r.model)) {
    if (!s.multiplied) continue;
    const double share = s.experts == 0 ? 1 : double(r.model.layers[std::size_t(s.layer)].ffn.experts_of_token) / s.experts;
    multiplied += share * double(s.shape.count());
  }
  for (const DecoderLayer& l : r.model.layers) {
    const auto p = r.documents.of(problem_of(l.attention, r.batch, r.len, r.len, r.formats().stored));
    attention += attention::forward_flops(p) / r.ranks.parts();
  }
  const double rows = double(r.rows_of_rank());
  const bool forward = r.purpose == Purpose::forward;
  return 2 * multiplied * rows * (forward ? 1 : 3) + attention * (forward ? 1 : 3.5);
}

Forecast forecast(const Recipe& recipe, const Device& device, int workers) {
  Forecast f;
  Ledger ledger;
  const Trace t = walked_trace(recipe, device, workers, &ledger, &f.walk);
  add_totals(t, recipe, device, f);
  for (std::size_t i = t.second_ops.begin; i < t.second_ops.end; ++i) f.walk.steps[i].times *= 1 + like_second(recipe);
  f.at_peak = ledger.at_peak();
  f.events = ledger.events();
  f.entries = ledger.entries();
  f.model_flops = model_flops(recipe);
  return f;
}

ForecastTotals forecast_totals(const Recipe& recipe, const Device& device, int workers) {
  ForecastTotals f;
  const auto repeated = repeated_trace(recipe, device, workers);
  add_totals(repeated ? *repeated : walked_trace(recipe, device, workers, nullptr, nullptr), recipe, device, f);
  return f;
}

std::size_t forecast_peak(const Recipe& recipe, const Device& device, int workers) {
  stop_if_interrupted();  // a model of thousands of layers takes a second, and searches ask for dozens
  Arena arena;
  Context ctx{arena, device};
  ctx.dry_workers = workers;
  dist::DryComm comm(0, recipe.ranks.count, device.ceilings.link_bytes_per_s);
  Training t(recipe, ctx, &comm);
  walk_passes(t, nullptr);
  return arena.peak();
}

namespace {

Recipe bare_of(const Recipe& r) {  // the choice of kernels does not depend on what stands
  Recipe bare = r;
  auto& layers = bare.model.layers;
  layers.erase(std::unique(layers.begin(), layers.end()), layers.end());
  bare.keep = {Keep::input};
  bare.holding = {};
  bare.micro_batches = 1;
  bare.ranks.sharding = Sharding::none;
  if (!r.ranks.split_tokens) bare.ranks = {};
  return bare;
}

}  // namespace

std::string in_words_of_fp8(std::span<const Recipe> recipes, const Device& device) {
  const auto quantised = [](const Recipe& r) { return r.formats().quantised(); };
  const auto one = std::find_if(recipes.begin(), recipes.end(), quantised);
  if (one == recipes.end()) return "";
  const auto some = [&](WeightCopies copies) {
    return std::any_of(recipes.begin(), recipes.end(), [&](const Recipe& r) { return quantised(r) && r.holding.copies == copies; });
  };
  const char* weights = !some(WeightCopies::kept) ? "Its weights are quantised just before each use, and nothing of them is kept in 8 bits."
                        : !some(WeightCopies::made) ? "Both 8-bit copies of its weights are kept, and the update writes them."
                                                    : "Its weights are quantised just before each use, or kept in 8 bits, as copies says.";
  return fmt::format("fp8: the blocks' products, with scales by {}; everything else is in bf16. {}",
                     names_of<Scales>.of(one->scales.value_or(usual_scales)),
                     device.kind == DeviceKind::cpu ? "On a CPU its arithmetic is emulated: same numbers, no faster." : weights);
}

std::string counted_by(std::span<const Recipe> recipes, const Device& device) {
  if (device.kind == DeviceKind::cpu) return "";
  std::vector<std::pair<std::string, std::string>> kernels;  // the kernel, and what it serves
  std::set<std::tuple<std::string, std::string, std::int64_t, std::int64_t, int, Purpose>> seen;
  for (const Recipe& r : recipes) {  // all have one model; bare recipes differ in nothing else
    if (!seen.emplace(name_of(r.precision), r.attention, r.batch, r.len, r.ranks.parts(), r.purpose).second) continue;
    Arena arena;
    Context ctx{arena, device};
    const Training t(bare_of(r), ctx);
    const std::string who(t.variant().name);
    const std::string what = fmt::format("{} {}", name_of(r.precision), r.attention);
    auto at = std::find_if(kernels.begin(), kernels.end(), [&](const auto& k) { return k.first == who; });
    if (at == kernels.end()) at = kernels.insert(at, {who, ""});
    if (at->second.find(what) == std::string::npos) at->second += (at->second.empty() ? "" : ", ") + what;
  }
  std::string line = fmt::format("Tensors for {} are counted as these kernels take them: ", device.name);
  for (const auto& [who, what] : kernels) line += fmt::format("attention {} as {}; ", what, who);
  return line + "every other op as the GPU's.";
}

}  // namespace headroom::engine
