#include <algorithm>
#include <memory>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "instruments/profile/record.h"
#include "instruments/profile/trace_timeline.h"
#include "studies/attention/sweep.h"
#include "studies/profile/profile.h"

namespace headroom::studies {

namespace {

Profile profile_variant(const ProfileAttention& asked, const attention::Variant& v, const Device& device, const ProfileOptions& o,
                        profile::TimelineTrace* trace) {
  const attention::Problem& p = asked.problem;
  const Passes passes = asked.passes;
  Place place(device, o.threads);
  const AttentionForecast forecast = forecast_case(p, v, passes, device, place.threads().count());
  const std::uint64_t limit = machine_limit(device);
  check(std::uint64_t(forecast.bytes.peak) <= limit, Code::out_of_memory, "profile: {} of {} needs {}, {} allows {}", v.name, describe(p),
        bytes_in_words(double(forecast.bytes.peak)), device.name, bytes_in_words(double(limit)));
  const PlaceMemory block = place.take(std::max<std::size_t>(std::size_t(forecast.bytes.peak), 1));
  Ledger ledger;
  Arena arena(block.data(), std::size_t(forecast.bytes.peak), &ledger);
  Context ctx{.arena = arena, .device = device, .threads = &place.threads(), .stream = place.stream()};
  const Random random{o.seed};
  // Walks the case from empty memory to gradients; `each` runs each pass, once or often.
  using Call = std::function<void()>;
  const auto walk = [&](const std::function<void(const Call&)>& each) {
    AttentionVisit visit;
    visit.fill_inputs = [&](const AttentionTensors& t) {
      place.fill_normal(t.fwd.q, random.stream(1));
      place.fill_normal(t.fwd.k, random.stream(2));
      place.fill_normal(t.fwd.v, random.stream(3));
      asked.of.fill(place, p, t.fwd.with);
    };
    visit.fill_d_o = [&](const AttentionTensors& t) { place.fill_normal(t.d_o, random.stream(4)); };
    visit.forward = [&](const Call& pass) { passes == Passes::backward ? pass() : each(pass); };
    visit.backward = each;
    return walk_case(p, v, passes, ctx, visit);
  };

  auto recording = recording_of(place, ledger, trace);
  std::optional<profile::ClockSamples> clock;
  if (place.on_gpu()) clock.emplace(device);
  int repeats = 0;  // a forward and a backward are one
  const AttentionBytes ran = walk([&](const Call& pass) {
    for (int i = 0; i < o.warmup && !o.stop(); ++i) pass();
    ctx.listener = recording->listener();
    int steps = 0;
    for (; steps < o.steps && !o.stop(); ++steps) recording->step(pass);
    repeats = std::max(repeats, steps);
    ctx.listener = nullptr;
  });
  Profile result{std::string(v.name), recording->timeline(), ledger.at_peak(), std::size_t(ran.peak), recording->overhead_ns() / 1e6};
  result.timeline.repeats = repeats;
  if (clock) result.sm_hz = clock->mean_hz();
  clock.reset();
  recording.reset();
  if (o.counters) walk([&](const Call& pass) { count(place, device, pass, result.counted); });
  return result;
}

}  // namespace

ProfileResult profile_attention(const ProfileAttention& a, const Device& device, const ProfileOptions& o) {
  attention::check(a.problem);
  std::vector<const attention::Variant*> variants;  // before the first is run: whether all can be
  const auto last = a.passes == Passes::forward ? attention::Pass::forward : attention::Pass::backward;
  for (const std::string& wanted : a.variants) variants.push_back(&attention::choose(a.problem, device, wanted, last));
  std::unique_ptr<profile::TraceWriter> trace;
  if (!o.trace.empty()) trace = std::make_unique<profile::TraceWriter>(o.trace);
  ProfileResult result;
  result.title = fmt::format("attention batch {} heads {} {} on {}", a.problem.batch, a.problem.heads, describe(a.problem), device.name);
  result.precision = a.problem.precision;
  result.ceilings = device.ceilings;
  result.device = device;
  for (const attention::Variant* variant : variants) {
    if (o.stop()) break;
    std::optional<profile::TimelineTrace> part;
    if (trace) part.emplace(*trace, int(result.profiles.size()) + 1, variant->name);
    result.profiles.push_back(profile_variant(a, *variant, device, o, part ? &*part : nullptr));
  }
  if (trace) trace->close();
  return result;
}

}  // namespace headroom::studies
