#include <algorithm>

#include "gpu/architecture.h"
#include "studies/profile/profile.h"

namespace headroom::studies {

namespace {

struct TensorWork {
  double flops = 0, ceiling_s = 0, cycles = 0;  // totals of all steps; seconds at the ceiling, cycles of one multiprocessor
};

TensorWork work_of(const Profile& p, const ProfileResult& r) {
  const auto places = places_of(p.timeline.marks);
  TensorWork w;
  std::vector<std::vector<bool>> counted(p.timeline.steps.size(), std::vector<bool>(p.timeline.marks.size(), false));
  for (const auto& s : p.timeline.slices) {
    if (s.mark < 0) continue;
    const auto& place = places[std::size_t(s.mark)];
    if (place.cost_of < 0 || (place.work != Work::matmul && place.work != Work::attention)) continue;
    Precision precision = place.precision;
    const Cost& cost = p.timeline.marks[std::size_t(place.cost_of)].region.cost;
    const int products = cost.on_card.tf32_products;
    if (precision.dtype == DType::f32) precision.math = products > 0 ? Math::tf32 : r.precision.math;
    const double each = flops_per_cycle(architecture_of(r.device.sm), precision);
    if (each == 0 || counted[std::size_t(s.step)][std::size_t(place.cost_of)]) continue;
    counted[std::size_t(s.step)][std::size_t(place.cost_of)] = true;
    const double flops = cost.flops * std::max(1, products);
    w.flops += flops;
    w.cycles += flops / each;
    if (const double ceiling = r.ceilings.of(precision); ceiling > 0) w.ceiling_s += flops / ceiling;
  }
  return w;
}

}  // namespace

void count(const Place& place, const Device& device, const std::function<void()>& call, std::optional<profile::Counted>& into) {
  profile::Counted now;
  if (place.on_gpu())
    now = profile::count_tensor_work(device.index, call, [&] { place.wait(); });
  else
    now.why = "a CPU has no tensor cores to count";
  if (!into || !into->why.empty() || !now.why.empty()) return void(into = into && !into->why.empty() ? *into : now);
  const double ms = into->ms + now.ms;
  const auto together = [&](double before, double more) { return ms > 0 ? (before * into->ms + more * now.ms) / ms : 0; };
  *into = {together(into->tensor_share, now.tensor_share), together(into->sm_hz, now.sm_hz), ms, ""};
}

void add_tensor_use(const Profile& p, const ProfileResult& r, Record& into) {
  const TensorWork w = work_of(p, r);
  double seconds = 0;
  for (const auto& s : p.timeline.steps) seconds += double(s.ns()) / 1e9;
  if (w.flops > 0 && seconds > 0) {
    into.add("tensor_tflops", w.flops / seconds / 1e12, Unit::tflops);
    if (w.ceiling_s > 0) into.add("tensor_ceiling_share", w.ceiling_s / seconds, Unit::share);
    if (p.sm_hz > 0) into.add("sm_mhz", p.sm_hz / 1e6).add("tensor_pipe_share", w.cycles / r.device.units / p.sm_hz / seconds, Unit::share);
  }
  if (!p.counted) return;
  if (!p.counted->why.empty()) return void(into.add(Part{Note{"--counters: " + p.counted->why + "."}}));
  into.add("tensor_pipe_counted", p.counted->tensor_share, Unit::share).add("counted_sm_mhz", p.counted->sm_hz / 1e6);
  into.add("counted_ms", p.counted->ms, Unit::ms);
  const double steps = p.timeline.repeats > 0 ? p.timeline.repeats : double(p.timeline.steps.size());
  const double counted = p.counted->tensor_share * p.counted->sm_hz * p.counted->ms / 1e3, formula = w.cycles / r.device.units / steps;
  if (formula > 0) into.add("counted_over_formula", counted / formula, Unit::ratio);  // cycles of the tensor pipe in one call
}

}  // namespace headroom::studies
