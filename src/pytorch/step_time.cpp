#include "pytorch/step_time.h"

#include <algorithm>

#include "base/text.h"
#include "dry/clock.h"
#include "pytorch/rates.h"

namespace headroom::pytorch {

namespace {

// The share of a link's busy time that the work beside it loses: as of our own step on two H200 (base/devices.json).
constexpr double slowed_beside = 0.4;
// The most that a host was seen to take for a collective of FSDP2 and of DDP, hooks and copies included: by two H200 and the model "large", whose steps wait
// for their host (bench/results/h200_step_two_gpus_beside_pytorch_2026-11-22.json: 176.6 and 113.1 ms).
constexpr double host_of_group_s = 1.7e-3, host_of_bucket_s = 0.8e-3;

}  // namespace

StepTime step_time(const LanguageModel& m, const Device& device) {
  StepTime t{.ms_by = why_not_timed(m)};
  if (!t.ms_by.empty()) return t;
  const auto rates = rates_of(device);
  if (!rates) {
    t.ms_by = why_no_rates(device);
    return t;
  }
  // Two of many micro-batches are walked: each further one takes as long as the second.
  struct Seconds {
    double s, low, high, least;
    bool waits_for_host;
  };
  const auto walked = [&](LanguageModel one, std::int64_t micro_batches) {
    one.accumulate = micro_batches;
    const dry::StepTimed timed = dry::step_time(dry::Process::of(launches_of(one, device.sm).written().record()), *rates);
    // Collectives slow the work beside them, and none was measured: a step that is one takes between two thirds of and twice the link's time.
    const dry::PartTime& sent = timed.step->parts[std::size_t(dry::Part::collectives)];
    const double share = std::min(1.0, sent.s / timed.step->s), beside = slowed_beside * sent.s;
    const bool waits = std::ranges::all_of(timed.step->parts, [&](const dry::PartTime& p) { return p.s < timed.step->idle_s; });
    const double host = sent.count * (one.sharded() ? host_of_group_s : host_of_bucket_s);
    return Seconds{timed.step->s + beside, std::max(timed.low_s * (1 - share / 3), timed.step->least_s),
                   std::max(timed.high_s * (1 + share) + beside, host), timed.step->least_s, waits};
  };
  const auto seconds = [&](const LanguageModel& one) {
    if (one.accumulate <= 2) return walked(one, one.accumulate);
    const Seconds a = walked(one, 1), b = walked(one, 2);
    const auto all = [&](double first, double both) { return first + double(one.accumulate - 1) * (both - first); };
    const double least = all(a.least, b.least);
    return Seconds{all(a.s, b.s), std::max(all(a.low, b.low), least), all(a.high, b.high), least, b.waits_for_host};
  };
  LanguageModel lean = m;
  lean.fused_norms = true;
  t.ms_low = 1e3 * seconds(lean).low;
  const Seconds whole = seconds(m);
  t.ms = 1e3 * whole.s, t.ms_high = 1e3 * whole.high;
  t.waits_for_host = whole.waits_for_host;
  t.ms_by = rates->source;
  if (m.gpus > 1) t.ms_by += "; collectives by the link's ceiling, not measured";
  if (m.compile != Compile::none) t.ms_by += "; which work torch.compile fuses is as with PyTorch 2.11";
  return t;
}

double tokens_per_s(const LanguageModel& m, double ms) { return double(m.batch * m.accumulate * m.len * m.gpus) / ms * 1e3; }

std::string tokens_per_s_in_words(const LanguageModel& m, const StepTime& t) {
  return estimate_in_words(tokens_per_s(m, *t.ms), tokens_per_s(m, *t.ms_high), tokens_per_s(m, *t.ms_low));
}

std::string in_words(const LanguageModel& m, const StepTime& t, bool fits) {
  if (!t.ms) return fmt::format("No time is forecast: {}.", t.ms_by);
  return fmt::format("A step {} about {}, between {} and {}: {} tokens/s ({}).{}", fits ? "takes" : "would take", time_in_words(*t.ms),
                     time_in_words(*t.ms_low), time_in_words(*t.ms_high), tokens_per_s_in_words(m, t), t.ms_by,
                     t.waits_for_host ? " The card waits for the host, which was taken to be as fast as beside an H200." : "");
}

}  // namespace headroom::pytorch
