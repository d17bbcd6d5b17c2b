#include <functional>
#include <memory>

#include "base/error.h"
#include "base/text.h"
#include "engine/data/feed_random.h"
#include "engine/exchange/agree.h"
#include "engine/forecast/forecast.h"
#include "engine/pass/recorded.h"
#include "instruments/profile/trace_timeline.h"
#include "studies/profile/profile.h"
#include "studies/profile/ranks.h"
#include "studies/step/quantised.h"
#include "studies/step/words.h"

namespace headroom::studies {

namespace {

using engine::Purpose;
using engine::Training;

// As `headroom step` runs it: on a GPU recorded once, with the marks listening, and launched whole.
Profile profile_phase(const engine::Recipe& recipe, const std::string& phase, const ProfileStep& s, const Device& device,
                      const ProfileOptions& o, dist::Comm* comm, profile::TimelineTrace* trace) {
  Place place(device, o.threads);
  const auto stop = [&] { return o.group ? o.group->stop(o.stop()) : o.stop(); };  // all ranks hear the same
  const std::size_t forecast = engine::forecast_peak(recipe, device, place.threads().count());
  const std::size_t bytes = o.group ? o.group->most(forecast, "what they need") : forecast;  // arenas of one size
  const std::uint64_t limit = s.memory_bytes;
  check(bytes <= limit, Code::out_of_memory, "profile: {} of this model needs {}, {} are available; a smaller --batch or --len, or --keep",
        phase, bytes_in_words(double(bytes)), bytes_in_words(double(limit)));
  const std::shared_ptr<void> shared = comm ? comm->take(bytes) : nullptr;
  const PlaceMemory memory = place.take(comm ? 0 : bytes);
  Ledger ledger;
  Arena arena(comm ? shared.get() : memory.data(), bytes, &ledger);
  Context ctx{.arena = arena, .device = device, .threads = &place.threads(), .stream = place.stream()};
  Training training(recipe, ctx, comm);
  if (comm) engine::agree_on(fmt::format("seed {} warmup {} steps {}", o.seed, o.warmup, o.steps), "a profile", ctx, *comm);
  training.initialise(o.seed);
  o.announce(fmt::format("{} · {}", words_of_first_step(place.on_gpu()), phase));
  training.warm();
  engine::feed_random(training, o.seed, 0, s.documents);
  training.set_rate(1e-4);
  const auto step = [&] {
    if (recipe.purpose == Purpose::forward) return training.forward();
    if (recipe.purpose == Purpose::gradients) return training.backward();
    training.passes(recipe.hyper());
  };
  const auto warm_up = [&](const std::function<void()>& call) {
    for (int i = 0; i < o.warmup && !stop(); ++i) call();
  };
  if (!place.on_gpu()) warm_up(step);
  auto recording = recording_of(place, ledger, trace);
  ctx.listener = recording->listener();
  const engine::Recorded recorded(step, ctx);
  if (place.on_gpu()) warm_up(std::cref(recorded));
  std::optional<profile::ClockSamples> clock;
  if (place.on_gpu()) clock.emplace(device);
  for (int i = 0; i < o.steps && !stop(); ++i) recording->step(std::cref(recorded));
  Profile result{phase, recording->timeline(), ledger.at_peak(), ledger.peak_bytes(), recording->overhead_ns() / 1e6};
  if (clock) result.sm_hz = clock->mean_hz();
  clock.reset();
  recording.reset();
  ctx.listener = nullptr;
  if (result.quantised = training.quantised(); !result.quantised.empty()) result.notes.push_back(in_words(recipe, result.quantised));
  if (o.counters) count(place, device, std::cref(recorded), result.counted);
  if (!comm) return result;
  RankRow mine = rank_row(result.timeline, comm->rank());
  mine.peak_bytes = std::int64_t(result.peak_bytes);
  mine.forecast_peak_bytes = std::int64_t(forecast);
  result.ranks = of_all_ranks(*o.group, mine);
  result.lanes = of_all_ranks(*o.group, lanes_of(result.timeline, comm->rank()));
  return result;
}

}  // namespace

ProfileResult profile_step(const ProfileStep& s, const Device& device, const ProfileOptions& o) {
  const auto comm = o.group ? o.group->comm(device) : nullptr;
  std::unique_ptr<profile::TraceWriter> trace;
  if (!o.trace.empty() && (!o.group || o.group->first())) trace = std::make_unique<profile::TraceWriter>(o.trace);
  ProfileResult result;
  result.title = fmt::format("{} batch {} len {} {} on {}{}", s.recipe.model.name, s.recipe.batch, s.recipe.len,
                             name_of(s.recipe.precision), o.group ? fmt::format("each of {} × ", o.group->ranks()) : "", device.name);
  result.precision = s.recipe.precision;
  result.ceilings = device.ceilings;
  result.device = device;
  constexpr std::pair<Purpose, const char*> phases[] = {
      {Purpose::forward, "forward"}, {Purpose::gradients, "forward+backward"}, {Purpose::training, "train"}};
  for (const auto& [purpose, name] : phases) {
    if (o.only && purpose < s.recipe.purpose) continue;
    if (purpose > s.recipe.purpose || (o.group ? o.group->stop(o.stop()) : o.stop())) break;
    engine::Recipe r = s.recipe;
    r.purpose = purpose;
    std::optional<profile::TimelineTrace> part;
    if (trace) part.emplace(*trace, int(result.profiles.size()) + 1, name);
    const int process = int(result.profiles.size()) + 1;
    try {
      result.profiles.push_back(profile_phase(r, name, s, device, o, comm.get(), part ? &*part : nullptr));
    } catch (const Error& e) {
      if (e.at.code != Code::interrupted || result.profiles.empty()) throw;
      break;  // what was recorded is shown
    }
    part.reset();
    if (trace) write_lanes(*trace, result.profiles.back().lanes, process, name);
  }
  if (trace) trace->close();
  return result;
}

}  // namespace headroom::studies
