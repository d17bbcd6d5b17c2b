#include "studies/step_time.h"

#include <algorithm>
#include <optional>

#include "base/random.h"
#include "base/text.h"
#include "engine/feed_random.h"
#include "engine/recorded.h"
#include "gpu/place.h"
#include "memory/block.h"
#include "ops/matmul/matmul.h"
#include "studies/driver_bytes.h"

namespace headroom {

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
  for (std::int64_t i = 0; i < n * n; ++i)
    a.as<float>()[i] = random.normal(std::uint64_t(i)), b.as<float>()[i] = random.normal(std::uint64_t(n * n + i));
  const auto m = bench::measure([&] { matmul::multiply({a, b, c}, ctx); }, {2, 8}, bench::host_timer());
  return 2e3 * double(n) * double(n) * double(n) / m.ms.min;
}

std::string who_did_not_fit(const engine::Forecast& f, std::uint64_t memory) {
  std::size_t sum = 0;
  for (const Entry& e : f.at_peak)
    if ((sum += e.taken) > memory)
      return fmt::format("needs {} of {}; {} ({}) could not be placed", bytes_in_words(double(f.peak_bytes)),
                         bytes_in_words(double(memory)), e.name.full(), bytes_in_words(double(e.taken)));
  return "";
}

// On a GPU the first call of all plans and records the step, so that a warm-up of 0 has that in its first sample.
bench::Measurement measured(Training& t, const Context& ctx, const Place& place, const bench::Protocol& protocol, std::uint64_t seed,
                            DriverBytes& driver, const std::function<bool()>& stop) {
  const auto step = [&] {
    if (t.recipe().purpose == Purpose::forward) return t.forward();
    if (t.recipe().purpose == Purpose::gradients) return t.backward();
    t.passes({.clip = t.recipe().holding.updating == engine::Updating::during ? 0.0 : 1.0});
  };
  t.set_rate(1e-4);
  std::optional<engine::Recorded> recorded;
  std::optional<Stopwatch> watch;
  if (place.on_gpu()) watch.emplace();
  const auto call = [&] {
    const bool first = !recorded;
    if (first) t.warm(), engine::feed_random(t, seed), recorded.emplace(step, ctx);
    (*recorded)();
    if (first) place.wait(), driver.after_first_run();
  };
  const bench::Timer timer = [&](const std::function<void()>& work) {
    watch->start(place.queue());
    work();
    watch->stop(place.queue());
    return double(watch->elapsed_ms());
  };
  return bench::measure(call, protocol, watch ? timer : bench::host_timer(), stop);
}

// The same step after each number of warm-up steps, side by side.
Table by_warm_up(const Table& rows, const std::vector<std::int64_t>& warmups) {
  enum : std::size_t { model, len = 2, precision, phase, ms, ms_std };
  Table t{"warmup", "Milliseconds after so many warm-up steps", {{"model"}, {"len"}, {"precision"}, {"phase"}}, {}};
  for (const auto w : warmups) {
    t.columns.push_back({fmt::format("after_{}", w), Unit::ms});
    t.columns.push_back({fmt::format("after_{}_std", w), Unit::ms, Show::spread});
  }
  for (const auto& row : rows.rows) {
    const std::vector<Value> which{row[model], row[len], row[precision], row[phase]};
    const bool more = !t.rows.empty() && std::equal(which.begin(), which.end(), t.rows.back().begin());
    if (!more) t.add(which);
    t.rows.back().insert(t.rows.back().end(), {row[ms], row[ms_std]});
  }
  for (auto& row : t.rows) row.resize(t.columns.size());  // Ctrl-C left some out
  return t;
}

}  // namespace

Record step_time(const StepTime& s, const Device& device, int threads, const std::function<bool()>& stop) {
  Place place(device, threads);
  const bool gpu = place.on_gpu();
  DriverBytes driver(place);
  const double cpu_ceiling = gpu ? 0 : s.matmul_flops > 0 ? s.matmul_flops : matmul_ceiling(device, place.threads());
  Table t{"rows",
          "Milliseconds of a step",
          {{"model"},
           {"batch", Unit::none, Show::detail},
           {"len"},
           {"precision"},
           {"phase"},
           {"ms", Unit::ms},
           {"ms_std", Unit::ms, Show::spread},
           {"tokens_per_s"},
           {"model_tflops", Unit::tflops},
           {"mfu", Unit::share},
           {"peak_bytes", Unit::bytes},
           {"forecast_peak_bytes", Unit::bytes},
           {"status"},
           {"why"},
           {"params", Unit::none, Show::detail},
           {"steps", Unit::none, Show::detail},
           {"warmup", Unit::none, s.warmups.size() > 1 ? Show::always : Show::detail},
           {"driver_bytes", Unit::bytes, gpu ? Show::always : Show::detail},
           {"loaded_bytes", Unit::bytes, Show::detail},
           {"unexplained_bytes", Unit::bytes, gpu ? Show::always : Show::detail}},
          {}};
  constexpr std::pair<Purpose, const char*> phases[] = {
      {Purpose::forward, "forward"}, {Purpose::gradients, "forward+backward"}, {Purpose::training, "train"}};
  for (const engine::ModelConfig& model : s.models)
    for (const Precision precision : s.precisions)
      for (const auto len : s.lens)
        for (const auto& phase : phases)
          for (const auto warmup : s.warmups) {
            if (stop()) break;
            const char* const name = phase.second;  // a binding could not be captured below: clang 14
            if (std::find(s.phases.begin(), s.phases.end(), name) == s.phases.end()) continue;
            Recipe r{model, s.batch, len, precision, {s.keep}, s.attention};
            r.purpose = phase.first, r.holding = s.holding;
            engine::Forecast f;
            const double ceiling = gpu ? device.ceilings.of(precision) : cpu_ceiling;
            const auto row = [&](const char* status, const std::string& why, const bench::Measurement& m, Value peak) {
              const bool timed = m.ms.count > 0, ran = gpu && !std::holds_alternative<std::monostate>(peak);
              const double tokens = double(s.batch) * double(len), rate = timed ? f.model_flops / (m.ms.mean * 1e9) : 0;
              t.add({model.name,
                     s.batch,
                     len,
                     std::string(name_of(precision)),
                     std::string(name),
                     timed ? Value(m.ms.mean) : Value(),
                     timed ? Value(m.ms.std) : Value(),
                     timed ? Value(1e3 * tokens / m.ms.mean) : Value(),
                     timed ? Value(rate) : Value(),
                     timed && ceiling > 0 ? Value(rate * 1e12 / ceiling) : Value(),
                     std::move(peak),
                     f.peak_bytes > 0 ? Value(std::int64_t(f.peak_bytes)) : Value(),
                     std::string(status),
                     why,
                     engine::param_count(model),
                     std::int64_t(m.ms.count),
                     std::int64_t(m.warmup),
                     ran ? Value(driver.used()) : Value(),
                     ran ? Value(driver.loaded()) : Value(),
                     ran ? Value(driver.unexplained(f.peak_bytes)) : Value()});
              if (s.row_added) s.row_added(t);
            };
            try {
              f = engine::forecast(r, device, threads);
              if (f.peak_bytes > s.memory_bytes) {
                row("oom", who_did_not_fit(f, s.memory_bytes), {}, {});
                continue;
              }
              driver.before_arena();
              const PlaceMemory memory = place.take(f.peak_bytes);
              driver.after_arena();
              Arena arena(memory.data(), memory.bytes());
              Context ctx{arena, device, &place.threads(), place.stream()};
              Training training(r, ctx);
              training.initialise(s.seed);
              const auto m =
                  measured(training, ctx, place, {.warmup = int(warmup), .steps = s.steps, .seconds = s.seconds}, s.seed + 1, driver, stop);
              row(m.complete ? "ok" : "interrupted", "", m, std::int64_t(arena.peak()));
            } catch (const Error& e) {
              if (e.at.code == Code::bad_argument) throw;  // the question is wrong, not the answer
              std::string why = e.what();
              std::replace(why.begin(), why.end(), '\n', ';');
              row(e.at.code == Code::out_of_memory ? "oom" : e.at.code == Code::unsupported ? "refused" : "failed", why, {}, {});
            }
          }
  std::optional<Table> warm_up;
  if (s.warmups.size() > 1) warm_up = by_warm_up(t, s.warmups);
  Record record{"", gpu ? device.name : fmt::format("{}, {} threads", device.name, threads), {}};
  if (gpu) {
    record.add("context_bytes", driver.context(), Unit::bytes);
    record.add(Part{t});
    if (warm_up) record.add(Part{*warm_up});
    record.add(Part{Note{
        fmt::format("MFU: 2 FLOPs for each multiplied weight and token forward, twice that backward, causal attention's visible half, no "
                    "recomputation; over the card's matmul rate in that precision ({}).",
                    device.ceilings.source)}});
    return record.add(Part{
        Note{"driver is all that cudaMemGetInfo says is taken: the arena (forecast), the context and what other programs hold "
             "(context_bytes), what running loaded (loaded_bytes: kernels' code, cuBLAS, the recorded graph), and unexplained bytes."}});
  }
  record.add("matmul_ceiling_tflops", cpu_ceiling / 1e12, Unit::tflops).add("threads", std::int64_t(threads));
  record.add(Part{t});
  if (warm_up) record.add(Part{*warm_up});
  return record.add(Part{
      Note{fmt::format("MFU is against {}.",
                       s.matmul_flops > 0 ? "the FP32 matmul that headroom device measured last"
                                          : "one FP32 matmul of 1024³ measured just now; headroom device measures longer and keeps it")}});
}

}  // namespace headroom
