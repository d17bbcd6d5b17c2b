#include "studies/memory/pytorch/step_time.h"

#include <algorithm>

#include "base/text.h"
#include "dry/clock.h"
#include "studies/rates.h"

namespace headroom::studies::pytorch {

StepTime step_time(const LanguageModel& m, const Device& device) {
  StepTime t{.ms_by = why_not_timed(m)};
  if (!t.ms_by.empty()) return t;
  const auto rates = rates_of(device);
  if (!rates) {
    t.ms_by = why_no_rates(device);
    return t;
  }
  const auto timed_of = [&](LanguageModel one, std::int64_t micro_batches) {
    one.accumulate = micro_batches;
    return dry::step_time(dry::Process::of(launches_of(one, device.sm).written().record()), *rates);
  };
  // Of many micro-batches two are walked: each more takes as long as the second.
  const std::int64_t walked = std::min<std::int64_t>(m.accumulate, 2), more = m.accumulate - walked;
  const auto ms = [&](const LanguageModel& one, auto&& of) {
    const double s = of(timed_of(one, walked));
    return 1e3 * (more > 0 ? s + double(more) * (s - of(timed_of(one, 1))) : s);
  };
  LanguageModel lean = m;
  lean.fused_norms = true;
  t.ms_by = rates->source;
  t.ms = ms(m, [](const dry::StepTimed& x) { return x.step->s; });
  t.ms_low = ms(lean, [](const dry::StepTimed& x) { return x.low_s; });
  t.ms_high = ms(m, [](const dry::StepTimed& x) { return x.high_s; });
  const dry::StepTimed timed = timed_of(m, 1);
  t.waits_for_host = std::ranges::all_of(timed.step->parts, [&](const dry::PartTime& p) { return p.s < timed.step->idle_s; });
  return t;
}

double tokens_per_s(const LanguageModel& m, double ms) { return double(m.batch * m.accumulate * m.len) / ms * 1e3; }

std::string in_words(const LanguageModel& m, const StepTime& t) {
  if (!t.ms) return fmt::format("No time: {}.", t.ms_by);
  return fmt::format("A step takes about {}, between {} and {}: {} tokens/s ({}).{}", time_in_words(*t.ms), time_in_words(*t.ms_low),
                     time_in_words(*t.ms_high), number_in_words(tokens_per_s(m, *t.ms)), t.ms_by,
                     t.waits_for_host ? " The card waits for the host, which was taken to be as fast as beside an H200." : "");
}

}  // namespace headroom::studies::pytorch
