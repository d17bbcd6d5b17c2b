#include "studies/forecast/time.h"

#include <algorithm>

#include "base/text.h"
#include "instruments/profile/activity_file.h"

namespace headroom::studies {

namespace {
std::string number_of_ms(double ms) { return ms < 1000 ? fmt::format("{:.3g}", ms) : fmt::format("{:.0f}", ms); }
}  // namespace

ForecastTime forecast_time(const dry::StepTimed& timed, const std::optional<dry::Rates>& rates, const Device& device) {
  ForecastTime t;
  if (!rates) {
    t.why = pytorch::why_no_rates(device);
    return t;
  }
  t.source = rates->source;
  if (!timed.step) {
    t.why = timed.why;
    return t;
  }
  const dry::StepTime& s = *timed.step;
  t.ms = s.s * 1e3;
  t.ms_low = timed.low_s * 1e3;
  t.ms_high = timed.high_s * 1e3;
  if (const dry::PartTime& c = s.parts[std::size_t(dry::Part::collectives)]; c.count > 0) {
    const double share = std::min(1.0, c.s / s.s);
    t.ms_low = std::max(*t.ms_low * (1 - share / 2), s.least_s * 1e3);
    t.ms_high = *t.ms_high * (1 + share);
    t.source += "; collectives by the link's ceiling, not measured";
  }
  if (s.left_out > 0) {
    const bool one = s.left_out == 1;
    t.left_out = fmt::format("{} of {} steps, longer than twice the middle one, {} left out ({} or {}): with {} the mean is {} ms.",
                             s.left_out, s.left_out + s.steps, one ? "is" : "are",
                             one ? "it compiles, evaluates, generates" : "they compile, evaluate, generate", one ? "saves" : "save",
                             one ? "it" : "them", number_of_ms(s.with_them_s * 1e3));
  }
  double flops = 0, most = s.idle_s;
  t.limit = "host";
  for (std::size_t i = 0; i < s.parts.size(); ++i) {
    const dry::PartTime& p = s.parts[i];
    if (p.count == 0) continue;
    t.parts.push_back({0, dry::part_names[i], p.s * 1e3, p.s / s.s, p.count});
    t.launches += p.count;
    flops += p.flops;
    if (p.s > most) {
      most = p.s;
      t.limit = dry::part_names[i];
    }
  }
  t.parts.push_back({0, "the card waits for the host", s.idle_s * 1e3, s.idle_s / s.s, t.launches});
  std::stable_sort(t.parts.begin(), t.parts.end(), [](const auto& a, const auto& b) { return a.ms > b.ms; });
  for (const dry::WorkTimed& w : timed.work)
    t.launches_of_step.push_back({0, profile::readable(w.name), dry::part_names[std::size_t(w.part)], w.shape, w.stream, w.s * 1e6});
  t.launch_us = t.launches > 0 ? s.host_s / t.launches * 1e6 : 0;
  t.tflops = flops / s.s * 1e-12;
  return t;
}

std::string in_words(const ForecastTime& t) {
  if (!t.ms) return fmt::format("No time is forecast: {}.", t.why);
  std::string text = fmt::format("A step takes about {} ms, between {} and {} ms ({}).", number_of_ms(*t.ms), number_of_ms(*t.ms_low),
                                 number_of_ms(*t.ms_high), t.source);
  if (!t.left_out.empty()) text += " " + t.left_out;
  text += fmt::format(" Its largest part is {}.", t.limit == "host" ? "the card's waiting for the host" : t.limit);
  text += fmt::format(" Matrix products and attention reach {:.3g} TFLOP/s over the step.", t.tflops);
  text += fmt::format(
      " The host takes {} for {:.0f} {} and for what Python and PyTorch do between them; a slower host than the one of the measured "
      "H200 takes longer (--host-speed).",
      time_in_words(t.launches * t.launch_us * 1e-3), t.launches, t.launches < 1.5 ? "launch" : "launches");
  return text;
}

}  // namespace headroom::studies
