#include "studies/step_time.h"

#include <algorithm>

#include "base/random.h"
#include "base/text.h"
#include "memory/block.h"
#include "ops/matmul/matmul.h"

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

}  // namespace

Record step_time(const StepTime& s, const Device& device, int threads, const std::function<bool()>& stop) {
  check(device.kind == DeviceKind::cpu, Code::unsupported,
        "only the CPU is timed in this build, {} is not; headroom plan --device forecasts it", device.name);
  Threads pool(threads);
  const double ceiling = s.matmul_flops > 0 ? s.matmul_flops : matmul_ceiling(device, pool);
  Table t{"rows",
          "Milliseconds of a step",
          {{"model"},
           {"batch", Unit::none, Show::detail},
           {"len"},
           {"precision"},
           {"phase"},
           {"ms", Unit::ms},
           {"ms_std", Unit::ms},
           {"tokens_per_s"},
           {"model_tflops", Unit::tflops},
           {"mfu", Unit::share},
           {"peak_bytes", Unit::bytes},
           {"forecast_peak_bytes", Unit::bytes},
           {"status"},
           {"why"},
           {"params", Unit::none, Show::detail},
           {"steps", Unit::none, Show::detail},
           {"warmup", Unit::none, Show::detail}},
          {}};
  constexpr std::pair<Purpose, const char*> phases[] = {
      {Purpose::forward, "forward"}, {Purpose::gradients, "forward+backward"}, {Purpose::training, "train"}};
  const auto params = engine::param_count(s.model);
  for (const Precision precision : s.precisions)
    for (const auto len : s.lens)
      for (const auto& [purpose, name] : phases) {
        if (stop()) break;
        Recipe r{s.model, s.batch, len, precision, {s.keep}, s.attention};
        r.purpose = purpose;
        engine::Forecast f;
        const auto row = [&](const char* status, const std::string& why, const bench::Measurement& m, Value peak) {
          const bool timed = m.ms.count > 0;
          const double tokens = double(s.batch) * double(len), rate = timed ? f.model_flops / (m.ms.mean * 1e9) : 0;
          t.add({s.model.name, s.batch, len, std::string(name_of(precision)), std::string(name), timed ? Value(m.ms.mean) : Value(),
                 timed ? Value(m.ms.std) : Value(), timed ? Value(1e3 * tokens / m.ms.mean) : Value(), timed ? Value(rate) : Value(),
                 timed ? Value(rate * 1e12 / ceiling) : Value(), std::move(peak),
                 f.peak_bytes > 0 ? Value(std::int64_t(f.peak_bytes)) : Value(), std::string(status), why, params, std::int64_t(m.ms.count),
                 std::int64_t(m.warmup)});
          if (s.row_added) s.row_added(t);
        };
        try {
          f = engine::forecast(r, device, threads);
          if (f.peak_bytes > s.memory_bytes) {
            row("oom", who_did_not_fit(f, s.memory_bytes), {}, {});
            continue;
          }
          const Block memory(f.peak_bytes);
          Arena arena(memory.data(), memory.bytes());
          Context ctx{arena, device, &pool};
          Training training(r, ctx);
          training.initialise(s.seed);
          const Random random{s.seed + 1};
          for (std::int64_t i = 0; i < training.tokens().count(); ++i) {
            training.tokens().as<std::int32_t>()[i] = std::int32_t(random.below(std::uint64_t(2 * i), std::uint64_t(s.model.vocab)));
            training.targets().as<std::int32_t>()[i] = std::int32_t(random.below(std::uint64_t(2 * i + 1), std::uint64_t(s.model.vocab)));
          }
          const auto call = [&] {
            if (purpose == Purpose::forward) return training.forward();
            training.backward();
            if (purpose == Purpose::training) training.update({});
          };
          const auto m = bench::measure(call, s.protocol, bench::host_timer(), stop);
          row(m.complete ? "ok" : "interrupted", "", m, std::int64_t(arena.peak()));
        } catch (const Error& e) {
          if (e.at.code == Code::bad_argument) throw;  // the question is wrong, not the answer
          std::string why = e.what();
          std::replace(why.begin(), why.end(), '\n', ';');
          row(e.at.code == Code::out_of_memory ? "oom" : e.at.code == Code::unsupported ? "refused" : "failed", why, {}, {});
        }
      }
  Record record{"", fmt::format("{} on {}, {} threads", s.model.name, device.name, threads), {}};
  record.add("matmul_ceiling_tflops", ceiling / 1e12, Unit::tflops).add("threads", std::int64_t(threads));
  record.add(Part{t});
  return record.add(Part{
      Note{fmt::format("MFU is against {}.",
                       s.matmul_flops > 0 ? "the FP32 matmul that headroom device measured last"
                                          : "one FP32 matmul of 1024³ measured just now; headroom device measures longer and keeps it")}});
}

}  // namespace headroom
