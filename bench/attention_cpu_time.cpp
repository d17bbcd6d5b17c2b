// Times attention's CPU variants on request, so that a peer in another process can be timed in turn with it.
//
// One line in: variant dtype mask batch heads dim len repeats — one line out: the least milliseconds of forward and of backward over the
// repeats. "matmul n repeats" answers with GFLOP/s of n × n × n. The first argument is the number of threads; a second one, "processor", counts the
// processor's time of all threads, which others on the machine lengthen less than the time that passes.
#include <algorithm>
#include <cstring>
#include <ctime>
#include <iostream>
#include <map>
#include <memory>
#include <sstream>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "base/text.h"
#include "memory/block.h"
#include "ops/attention/attention.h"
#include "ops/matmul/matmul.h"

namespace {

using namespace headroom;
namespace at = headroom::attention;

clockid_t clock_used = CLOCK_MONOTONIC;

double now_ms() {
  timespec t{};
  clock_gettime(clock_used, &t);
  return 1e3 * double(t.tv_sec) + 1e-6 * double(t.tv_nsec);
}

template <class F>
double least_ms(int repeats, F&& f) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double start = now_ms();
    f();
    least = std::min(least, now_ms() - start);
  }
  return least;
}

struct Run {  // tensors of one configuration, kept between requests
  at::Problem problem;
  const at::Variant& variant;
  Block block;
  Arena arena;
  at::Forward forward;
  at::Backward backward;

  static std::size_t bytes(const at::Problem& p, const at::Variant& v, int workers) {
    Device cpu;
    Arena dry;
    Context ctx{dry, cpu};
    at::make_saved(v, p, ctx);
    const auto scratch =
        std::max(at::workspace_bytes(v, p, cpu, at::Pass::forward, workers), at::workspace_bytes(v, p, cpu, at::Pass::backward, workers));
    return dry.peak() + scratch + 4 * Tensor(nullptr, p.precision.dtype, p.q_shape()).bytes() +
           4 * Tensor(nullptr, p.precision.dtype, p.k_shape()).bytes() + Tensor(nullptr, DType::f32, p.lse_shape()).bytes() +
           16 * Arena::alignment;
  }
  Run(const at::Problem& p, const at::Variant& v, int workers)
      : problem(p), variant(v), block(bytes(p, v, workers)), arena(block.data(), block.bytes()) {
    const auto make = [&](const char* name, const Shape& shape, std::uint64_t stream) {
      Tensor t = arena.make(name, p.precision.dtype, shape);
      const Random random = Random{1}.stream(stream);
      with_float(t.dtype, [&]<class T>() {
        for (std::int64_t i = 0; i < t.count(); ++i) t.as<T>()[i] = narrow<T>(random.normal(std::uint64_t(i)));
      });
      return t;
    };
    Device cpu;
    Context ctx{arena, cpu};
    const at::Saved saved = at::make_saved(v, p, ctx);
    forward = {make("q", p.q_shape(), 1),
               make("k", p.k_shape(), 2),
               make("v", p.k_shape(), 3),
               make("o", p.q_shape(), 4),
               arena.make("lse", DType::f32, p.lse_shape()),
               saved};
    backward = {forward.q,
                forward.k,
                forward.v,
                forward.o,
                forward.lse,
                make("d_o", p.q_shape(), 5),
                {},
                make("dq", p.q_shape(), 6),
                make("dk", p.k_shape(), 7),
                make("dv", p.k_shape(), 8),
                saved};
  }
};

}  // namespace

int main(int argc, char** argv) {
  if (argc > 2 && argv[2] == std::string("processor")) clock_used = CLOCK_PROCESS_CPUTIME_ID;
  Threads pool(argc > 1 ? int(parse_integer(argv[1], "threads")) : 0);
  const Device cpu;
  std::string asked, before;
  std::unique_ptr<Run> run;
  while (std::getline(std::cin, asked)) {
    std::istringstream words(asked);
    std::string variant, dtype, mask;
    words >> variant;
    if (variant == "matmul") {
      std::int64_t n = 0;
      int repeats = 1;
      words >> n >> repeats;
      std::vector<float> a(std::size_t(n * n), 0.5f), b = a, c = a;
      Arena arena;
      Block block(256);
      Arena wet(block.data(), block.bytes());
      Context ctx{wet, cpu, &pool};
      const auto view = [&](std::vector<float>& x) { return Tensor(x.data(), DType::f32, {n, n}); };
      std::cout << 2e-6 * double(n * n * n) / least_ms(repeats, [&] { matmul::multiply({view(a), view(b), view(c)}, ctx); }) << std::endl;
      continue;
    }
    at::Problem p;
    int repeats = 1;
    words >> dtype >> mask >> p.batch >> p.heads >> p.head_dim >> p.len_q >> repeats;
    const auto precision = precision_named(dtype);
    const auto named = at::mask_named(mask);
    const at::Variant* v = at::variant_named(variant);
    if (!words || !precision || !named || !v) {
      std::cerr << "expected: variant dtype mask batch heads dim len repeats, got: " << asked << '\n';
      return 2;
    }
    p.kv_heads = p.heads, p.len_k = p.len_q, p.precision = *precision, p.mask = *named;
    const std::string key = asked.substr(0, asked.rfind(' '));
    if (key != before) run.reset(), run = std::make_unique<Run>(p, *v, pool.count()), before = key;
    Context ctx{run->arena, cpu, &pool};
    const double forward = least_ms(repeats, [&] { at::forward(*v, p, run->forward, ctx); });
    const double backward = least_ms(repeats, [&] { at::backward(*v, p, run->backward, ctx); });
    std::cout << forward << ' ' << backward << std::endl;
  }
}
