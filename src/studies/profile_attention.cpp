#include <algorithm>
#include <memory>

#include "base/convert.h"
#include "base/error.h"
#include "base/random.h"
#include "base/text.h"
#include "instruments/profile/record.h"
#include "instruments/profile/trace_timeline.h"
#include "memory/block.h"
#include "studies/attention_sweep.h"
#include "studies/profile.h"

namespace headroom::studies {

namespace {

void fill(const Tensor& t, Random random) {
  with_float(t.dtype, [&]<class T>() {
    for (std::int64_t i = 0; i < t.count(); ++i) t.as<T>()[i] = narrow<T>(random.normal(std::uint64_t(i)));
  });
}

Profile profile_variant(const attention::Problem& p, const attention::Variant& v, Passes passes, const Device& device,
                        const ProfileOptions& o) {
  Threads pool(o.threads);
  const AttentionForecast forecast = forecast_case(p, v, passes, device, pool.count());
  const std::uint64_t limit = machine_limit(device);
  check(std::uint64_t(forecast.bytes.peak) <= limit, Code::out_of_memory, "profile: {} of {} needs {}, {} allows {}", v.name, describe(p),
        bytes_in_words(double(forecast.bytes.peak)), device.name, bytes_in_words(double(limit)));
  const Block block(std::max<std::size_t>(std::size_t(forecast.bytes.peak), 1));
  Ledger ledger;
  Arena arena(block.data(), std::size_t(forecast.bytes.peak), &ledger);
  Context ctx{.arena = arena, .device = device, .threads = &pool};
  profile::Recording recording(&ledger);
  const Random random{o.seed};
  const auto repeat = [&](const std::function<void()>& pass, bool recorded) {
    for (int i = 0; i < o.warmup && !o.stop(); ++i) pass();
    ctx.listener = recorded ? recording.listener() : nullptr;
    for (int i = 0; recorded && i < o.steps && !o.stop(); ++i) recording.step(pass);
    ctx.listener = nullptr;
    if (!recorded) pass();
  };
  AttentionVisit visit;
  visit.fill_inputs = [&](const AttentionTensors& t) {
    fill(t.fwd.q, random.stream(1)), fill(t.fwd.k, random.stream(2)), fill(t.fwd.v, random.stream(3));
  };
  visit.fill_d_o = [&](const AttentionTensors& t) { fill(t.d_o, random.stream(4)); };
  visit.forward = [&](const std::function<void()>& pass) { repeat(pass, passes != Passes::backward); };
  visit.backward = [&](const std::function<void()>& pass) { repeat(pass, true); };
  const AttentionBytes ran = walk_case(p, v, passes, ctx, visit);
  return {std::string(v.name), recording.timeline(), ledger.at_peak(), std::size_t(ran.peak), {}};
}

}  // namespace

ProfileResult profile_attention(const ProfileAttention& a, const Device& device, const ProfileOptions& o) {
  check(device.kind == DeviceKind::cpu, Code::unsupported, "profile attention: only the CPU is served in this build, {} is not",
        device.name);
  attention::check(a.problem);
  std::unique_ptr<profile::TraceWriter> trace;
  if (!o.trace.empty()) trace = std::make_unique<profile::TraceWriter>(o.trace);
  ProfileResult result;
  result.title = fmt::format("attention batch {} heads {} {} on {}", a.problem.batch, a.problem.heads, describe(a.problem), device.name);
  result.precision = a.problem.precision;
  result.ceilings = device.ceilings;
  for (const std::string& wanted : a.variants) {
    if (o.stop()) break;
    result.profiles.push_back(profile_variant(a.problem, attention::choose(a.problem, device, wanted), a.passes, device, o));
    if (trace) write_trace(*trace, result.profiles.back().timeline, int(result.profiles.size()), result.profiles.back().phase);
  }
  if (trace) trace->close();
  return result;
}

}  // namespace headroom::studies
