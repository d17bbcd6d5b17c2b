#include "studies/step/step_rows.h"

#include <algorithm>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "engine/data/feed_random.h"
#include "engine/exchange/agree.h"
#include "engine/pass/recorded.h"
#include "memory/block.h"
#include "ops/matmul/matmul.h"
#include "studies/memory/room.h"
#include "studies/step/words.h"

namespace headroom::studies {

using engine::Purpose;
using engine::Recipe;
using engine::Training;

namespace {

// The best FP32 rate of this machine's matmul on random data, 1024³: the CPU's ceiling, whatever the storage type.
double matmul_ceiling(const Device& device, Threads& pool) {
  constexpr std::int64_t n = 1024;
  const Block memory(3 * n * n * 4);
  Arena arena(memory.data(), memory.bytes());
  Context ctx{arena, device, &pool};
  const Tensor a = arena.make("a", DType::f32, {n, n}), b = arena.make("b", DType::f32, {n, n}), c = arena.make("c", DType::f32, {n, n});
  const Random random{1};
  for (std::int64_t i = 0; i < n * n; ++i) {
    a.as<float>()[i] = random.normal(std::uint64_t(i));
    b.as<float>()[i] = random.normal(std::uint64_t(n * n + i));
  }
  const auto m = bench::measure([&] { matmul::multiply({a, b, c}, ctx); }, {2, 8}, bench::host_timer());
  return 2e3 * double(n) * double(n) * double(n) / m.ms.min;
}

std::string who_did_not_fit(const engine::Forecast& f, std::uint64_t memory) {
  std::size_t sum = 0;
  for (const Entry& e : f.at_peak)
    if ((sum += e.taken) > memory)
      return fmt::format("needs {} of {}; {} ({}) could not be allocated", bytes_in_words(double(f.peak_bytes)),
                         bytes_in_words(double(memory)), e.name.full(), bytes_in_words(double(e.taken)));
  return fmt::format("fits here, and another rank needs more than {}", bytes_in_words(double(memory)));
}

}  // namespace

StepRows::StepRows(const StepTime& s, const Device& device, const std::function<bool()>& stop, dist::Group* group)
    : s_(s),
      device_(device),
      stop_(stop),
      group_(group),
      comm_(group ? group->comm(device) : nullptr),
      memory_(limit_of_a_run(device, s.memory, group, group ? comm_->own_bytes() : 0)),
      room_(std::all_of(s.levers.keep.begin(), s.levers.keep.end(), [](const engine::Keeping& k) { return k.found(); })
                ? 0
                : std::min(memory_, room_for_a_run(device, s.memory, group))),
      place_(device, s.threads),
      driver_(place_),
      cpu_ceiling_(place_.on_gpu()      ? 0
                   : s.matmul_flops > 0 ? s.matmul_flops
                                        : matmul_ceiling(device, place_.threads())) {}

StepRow StepRows::measured_row(const StepCase& c) {
  StepRow row{.model = c.recipe.model.name, .batch = c.recipe.batch, .len = c.recipe.len, .levers = c.recipe.levers()};
  row.ranks = c.recipe.ranks, row.documents = in_words(s_.documents);
  row.phase = c.recipe.purpose, row.warmup = c.warmup, row.params = engine::param_count(c.recipe.model);
  try {
    measure(c, row);
  } catch (const Error& e) {
    if (e.at.code == Code::bad_argument) throw;  // the question is wrong, not the answer
    if (comm_) throw;                            // the other ranks cannot go on without this one
    row.why = e.what();
    std::replace(row.why.begin(), row.why.end(), '\n', ';');
    row.status = status_of(e.at.code);
  }
  return row;
}

void StepRows::measure(const StepCase& c, StepRow& row) {
  Recipe recipe = c.recipe;
  find_keep_as_first(recipe, group_, [&] { engine::find_keep(recipe, room_, device_, s_.threads); });
  row.kept = engine::kept_in_words(recipe);
  const engine::Forecast f = engine::forecast(recipe, device_, s_.threads);
  row.forecast_peak_bytes = std::int64_t(f.peak_bytes);
  if (const auto& e = f.expected) row.forecast_ms = e->ms, row.forecast_ms_low = e->low_ms, row.forecast_ms_high = e->high_ms;
  const std::size_t taken = group_ ? group_->most(f.peak_bytes, "what they need") : f.peak_bytes;  // arenas of one size
  if (f.host_bytes > 0) row.forecast_host_bytes = std::int64_t(f.host_bytes);
  if (taken > memory_) {
    row.status = Status::oom;
    row.why = who_did_not_fit(f, memory_);
    return;
  }
  if (row.why = host_misfit(f.host_bytes, device_, group_); !row.why.empty()) {
    row.status = Status::oom;
    return;
  }
  driver_.before_arena();
  std::optional<PlaceMemory> alone;
  std::shared_ptr<void> shared;
  if (comm_)
    shared = comm_->take(taken);
  else
    alone.emplace(place_.take(taken));
  driver_.after_arena();
  Arena arena(comm_ ? shared.get() : alone->data(), taken);
  Context ctx{arena, device_, &place_.threads(), place_.stream()};
  Training training(recipe, ctx, comm_.get());
  if (comm_) engine::agree_on(fmt::format("seed {} warmup {} steps {}", s_.seed, c.warmup, s_.steps), "a row", ctx, *comm_);
  training.initialise(s_.seed);
  if (training.host_keep()) row.host_bytes = std::int64_t(training.host_keep()->host_bytes());
  if (f.host_ms > 0) row.host_ms = f.host_ms, row.host_exposed_ms = f.host_exposed_ms;
  if (f.link_ms > 0) row.link_ms = f.link_ms, row.exposed_ms = f.exposed_ms;
  if (comm_) row.link_bytes = std::int64_t(f.link_bytes), row.comm_bytes = std::int64_t(comm_->own_bytes());
  const auto m = timed(c, training, ctx);
  row.status = m.complete ? Status::ok : Status::interrupted;
  row.peak_bytes = std::int64_t(arena.peak());
  row.steps = m.ms.count, row.samples = m.ms;
  if (m.ms.count > 0) add_times(f, m, row);
  if (!place_.on_gpu()) return;
  row.driver_bytes = driver_.used();
  row.loaded_bytes = driver_.loaded();
  row.unexplained_bytes = driver_.unexplained(f.peak_bytes);
}

// On a GPU the first call of all plans and records the step, so that a warm-up of 0 has that in its first sample.
bench::Measurement StepRows::timed(const StepCase& c, Training& t, const Context& ctx) {
  const auto step = [&] {
    if (t.recipe().purpose == Purpose::forward) return t.forward();
    if (t.recipe().purpose == Purpose::gradients) return t.backward();
    t.passes(t.recipe().hyper());
  };
  t.set_rate(1e-4);
  std::optional<engine::Recorded> recorded;
  std::optional<Stopwatch> watch;
  if (place_.on_gpu()) watch.emplace();
  const auto call = [&] {
    const bool first = !recorded;
    if (first) {
      c.progress(words_of_first_step(place_.on_gpu()));
      t.warm();
      engine::feed_random(t, s_.seed + 1, 0, s_.documents);
      recorded.emplace(step, ctx);
    }
    (*recorded)();
    if (first) {
      place_.wait();
      driver_.after_first_run();
    }
  };
  const bench::Timer timer = [&](const std::function<void()>& work) {
    watch->start(place_.queue());
    work();
    watch->stop(place_.queue());
    return double(watch->elapsed_ms());
  };
  const bench::Protocol protocol{.warmup = int(c.warmup), .steps = s_.steps, .seconds = s_.seconds};
  return bench::measure(call, protocol, watch ? timer : bench::host_timer(), stop_);
}

void StepRows::add_times(const engine::Forecast& f, const bench::Measurement& m, StepRow& row) {
  const double tokens = double(row.batch) * double(row.len) * double(row.ranks.batches()), rate = f.model_flops / (m.ms.mean * 1e9);
  row.ms = m.ms.mean, row.ms_std = m.ms.spread();
  row.tokens_per_s = 1e3 * tokens / m.ms.mean;
  row.model_tflops = rate;
  // A ceiling that a step exceeds was measured while something else ran here, other ranks say: it is measured again, and if it is still none, there
  // is no MFU.
  if (!place_.on_gpu() && rate * 1e12 > cpu_ceiling_) cpu_ceiling_ = std::max(cpu_ceiling_, matmul_ceiling(device_, place_.threads()));
  const double ceiling = place_.on_gpu() ? device_.ceilings.of(row.levers.precision) : cpu_ceiling_;
  if (ceiling > 0 && (place_.on_gpu() || rate * 1e12 <= ceiling)) row.mfu = rate * 1e12 / ceiling;
}

}  // namespace headroom::studies
