// Times the products of a block's weights on a GPU in bf16 and in fp8 with every kind of scale, in turns: forward, dX and dW of the four
// weights of a model at so many tokens. Each product's calls are recorded as a graph over sets of operands that no cache holds together.
//
// products_gpu_time [model [tokens]]: 2.7B, 4096
#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "engine/model/models.h"
#include "engine/model/params.h"
#include "engine/model/plain_model.h"
#include "engine/recipe/formats.h"
#include "gpu/blas.h"
#include "gpu/buffer.h"
#include "gpu/device.h"
#include "gpu/fill.h"
#include "ops/matmul/matmul.h"
#include "ops/quantise/quantise.h"

namespace {

using namespace headroom;
using engine::Formats;
using engine::Scales;

struct Shape3 {
  std::string name;
  std::int64_t m, n, k;
  ScaledFormat Formats::*a, Formats::*b;
  DType c;
};

struct Timed {
  std::unique_ptr<Graph> graph;
  int calls = 0;
  std::vector<float> ms;
  std::string why;  // it is not there
  float median() {
    std::nth_element(ms.begin(), ms.begin() + std::ptrdiff_t(ms.size() / 2), ms.end());
    return ms[ms.size() / 2];
  }
};

Timed record(const Shape3& s, const Formats& f, bool whole, const Device& device, const Stream& stream, Arena& arena) {
  Context ctx{arena, device};
  ctx.stream = stream.raw();
  Timed t;
  std::vector<matmul::Product> sets;
  const double bytes = double(s.m * s.k + s.n * s.k) * 2 + double(s.m * s.n) * 4;
  const int count = int(std::clamp(2.5e8 / bytes, 1.0, 8.0));
  const auto operand = [&](ScaledFormat format, std::int64_t lines, std::uint64_t seed) -> Scaled {
    const Tensor x = arena.make("x", DType::bf16, {lines, s.k});
    fill_normal(x, Random{seed}, stream);
    if (!f.quantised()) return x;
    const Scaled y = quantise::make("y", format, lines, s.k, ctx);
    quantise::quantise({x, y}, ctx);
    return y;
  };
  for (int i = 0; i < count; ++i) {
    matmul::Product p{.a = operand(f.*s.a, s.m, 1 + std::uint64_t(i)),
                      .b = matmul::transposed(operand(f.*s.b, s.n, 50 + std::uint64_t(i))),
                      .c = arena.make("c", s.c, {s.m, s.n})};
    if (f.quantised()) p.sums = whole ? matmul::Sums::whole : matmul::Sums::two_level;
    sets.push_back(p);
  }
  t.calls = std::max(count, 4);
  try {
    {
      const blas::Measuring measuring;
      for (const auto& p : sets) matmul::multiply(p, ctx);
    }
    t.graph = std::make_unique<Graph>(stream, [&] {
      for (int i = 0; i < t.calls; ++i) matmul::multiply(sets[std::size_t(i % count)], ctx);
    });
  } catch (const Error& e) { t.why = e.what(); }
  return t;
}

void time_model(const engine::PlainModel& c, std::int64_t tokens, const Device& device) {
  const Stream stream(0);
  Stopwatch watch;
  const Buffer memory(std::size_t(60) << 30);
  struct Way {
    const char* name;
    Formats formats;
    bool whole;
  };
  const Precision eight{DType::e4m3};
  Formats fine = formats_of(eight, Scales::block);  // every gradient 1x128
  fine.gradient_transposed = fine.gradient;
  const Way ways[] = {{"bf16", formats_of({DType::bf16}, Scales::block), false},
                      {"tensor", formats_of(eight, Scales::tensor), false},
                      {"tensor, whole sums", formats_of(eight, Scales::tensor), true},
                      {"row", formats_of(eight, Scales::row), false},
                      {"row, whole sums", formats_of(eight, Scales::row), true},
                      {"block", formats_of(eight, Scales::block), false},
                      {"block, dw 1x128", fine, false}};
  constexpr int all = int(std::size(ways));
  double total_ms[all] = {}, flops = 0;
  const std::pair<const char*, std::pair<std::int64_t, std::int64_t>> weights[] = {
      {"qkv", {(c.heads + 2 * c.kv_heads) * c.head_dim, c.width}},
      {"out", {c.width, c.heads * c.head_dim}},
      {"gate_up", {2 * c.ffn, c.width}},
      {"down", {c.width, c.ffn}}};
  fmt::print("{}, {} tokens: us and TFLOP/s\n{:<16}", c.name, tokens, "");
  for (const Way& w : ways) fmt::print("{:>20}", w.name);
  fmt::print("\n");
  for (const auto& [name, sides] : weights) {
    const auto [out, in] = sides;
    for (const Shape3& s :
         {Shape3{fmt::format("{} forward", name), tokens, out, in, &Formats::activation, &Formats::weight, DType::bf16},
          Shape3{fmt::format("{} dx", name), tokens, in, out, &Formats::gradient, &Formats::weight, DType::bf16},
          Shape3{fmt::format("{} dw", name), out, in, tokens, &Formats::gradient_transposed, &Formats::activation, DType::f32},
          Shape3{fmt::format("{} dw, bf16", name), out, in, tokens, &Formats::gradient_transposed, &Formats::activation, DType::bf16}}) {
      Arena arena(memory.data(), memory.bytes());
      std::vector<Timed> timed;
      for (const Way& w : ways) timed.push_back(record(s, w.formats, w.whole, device, stream, arena));
      for (int round = 0; round < 9; ++round)
        for (Timed& t : timed) {
          if (!t.graph) continue;
          watch.start(stream);
          t.graph->launch(stream);
          watch.stop(stream);
          t.ms.push_back(watch.elapsed_ms() / float(t.calls));
        }
      const double work = 2.0 * double(s.m) * double(s.n) * double(s.k);
      const bool counted = !s.name.ends_with("bf16");  // the sum is of a step with FP32 gradients
      if (counted) flops += work;
      fmt::print("{:<16}", s.name);
      for (int w = 0; w < all; ++w) {
        Timed& t = timed[std::size_t(w)];
        if (!t.graph) {
          fmt::print("{:>20}", "-");
          if (counted) total_ms[w] += 1e9;
          continue;
        }
        fmt::print("{:>12.1f} {:>7.0f}", t.median() * 1e3, work / t.median() * 1e-9);
        if (counted) total_ms[w] += t.median();
      }
      fmt::print("\n");
      for (int w = 0; w < all; ++w)
        if (!timed[std::size_t(w)].graph) fmt::print("  {}: {}\n", ways[w].name, timed[std::size_t(w)].why);
    }
  }
  fmt::print("{:<16}", "all");
  for (int w = 0; w < all; ++w) {
    if (total_ms[w] >= 1e9)
      fmt::print("{:>20}", "-");
    else
      fmt::print("{:>12.1f} {:>7.0f}", total_ms[w] * 1e3, flops / total_ms[w] * 1e-9);
  }
  fmt::print("\n");
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Device device = cuda_device(0);
    time_model(sizes_of(engine::model_described(argc > 1 ? argv[1] : "2.7B")), argc > 2 ? std::stoll(argv[2]) : 4096, device);
  } catch (const std::exception& e) {
    fmt::print(stderr, "{}\n", e.what());
    return 1;
  }
}
