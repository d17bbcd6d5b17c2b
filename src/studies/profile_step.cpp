#include <memory>

#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "engine/forecast.h"
#include "instruments/profile/record.h"
#include "instruments/profile/trace_timeline.h"
#include "memory/block.h"
#include "studies/profile.h"

namespace headroom::studies {

namespace {

using engine::Purpose;
using engine::Training;

void fill_tokens(Training& t, std::uint64_t seed, std::int64_t vocab) {
  const Random random{seed + 1};
  for (std::int64_t i = 0; i < t.tokens().count(); ++i) {
    t.tokens().as<std::int32_t>()[i] = std::int32_t(random.below(std::uint64_t(2 * i), std::uint64_t(vocab)));
    t.targets().as<std::int32_t>()[i] = std::int32_t(random.below(std::uint64_t(2 * i + 1), std::uint64_t(vocab)));
  }
}

Profile profile_phase(const engine::Recipe& recipe, const std::string& phase, std::uint64_t limit, const Device& device,
                      const ProfileOptions& o) {
  Place place(device, o.threads);
  Threads& pool = place.threads();
  const std::size_t bytes = engine::forecast_peak(recipe, device, pool.count());
  check(bytes <= limit, Code::out_of_memory, "profile: {} of this model needs {}, {} are available; a smaller --batch or --len, or --keep",
        phase, bytes_in_words(double(bytes)), bytes_in_words(double(limit)));
  const Block memory(bytes);
  Ledger ledger;
  Arena arena(memory.data(), memory.bytes(), &ledger);
  Context ctx{.arena = arena, .device = device, .threads = &pool};
  Training training(recipe, ctx);
  training.initialise(o.seed);
  fill_tokens(training, o.seed, recipe.model.vocab);
  const auto call = [&] {
    if (recipe.purpose == Purpose::forward) return training.forward();
    training.backward();
    if (recipe.purpose == Purpose::training) training.update({});
  };
  for (int i = 0; i < o.warmup && !o.stop(); ++i) call();
  profile::Recording recording(&ledger);
  ctx.listener = recording.listener();
  for (int i = 0; i < o.steps && !o.stop(); ++i) recording.step(call);
  Profile result{phase, recording.timeline(), ledger.at_peak(), ledger.peak_bytes(), recording.overhead_ns() / 1e6};
  if (o.counters) count(place, device, call, result.counted);
  return result;
}

}  // namespace

ProfileResult profile_step(const ProfileStep& s, const Device& device, const ProfileOptions& o) {
  check(device.kind == DeviceKind::cpu, Code::unsupported, "profile step: only the CPU is served in this build, {} is not", device.name);
  std::unique_ptr<profile::TraceWriter> trace;
  if (!o.trace.empty()) trace = std::make_unique<profile::TraceWriter>(o.trace);
  ProfileResult result;
  result.title = fmt::format("{} batch {} len {} {} on {}", s.recipe.model.name, s.recipe.batch, s.recipe.len, name_of(s.recipe.precision),
                             device.name);
  result.precision = s.recipe.precision;
  result.ceilings = device.ceilings, result.device = device;
  constexpr std::pair<Purpose, const char*> phases[] = {
      {Purpose::forward, "forward"}, {Purpose::gradients, "forward+backward"}, {Purpose::training, "train"}};
  for (const auto& [purpose, name] : phases) {
    if (purpose > s.recipe.purpose || o.stop()) break;
    engine::Recipe r = s.recipe;
    r.purpose = purpose;
    result.profiles.push_back(profile_phase(r, name, s.memory_bytes, device, o));
    if (trace) write_trace(*trace, result.profiles.back().timeline, int(result.profiles.size()), name);
  }
  if (trace) trace->close();
  return result;
}

}  // namespace headroom::studies
