// The table `attention` of `headroom precision fp8`: O of attention in fp8 against FP64 of the numbers before they were rounded.
#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "base/convert.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "memory/block.h"
#include "ops/attention/fp8/fp8.h"
#include "ops/attention/reference.h"
#include "studies/precision/fp8.h"
#include "studies/precision/rows.h"

namespace headroom::studies::precision {

namespace {

using attention::Problem;

constexpr std::int64_t queries = 32, head_dim = 64;

// Signal over error in dB: 10 log10 of the exact values' squares over the errors' squares.
template <class F>
Value decibels_of(std::span<const double> exact, F&& got) {  // got(i): the value beside exact[i]
  double signal = 0, noise = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    const double error = double(got(i)) - exact[i];
    signal += exact[i] * exact[i];
    noise += error * error;
  }
  return noise == 0 ? Value(std::string("exact")) : Value(10 * std::log10(signal / noise));
}

struct Data {  // what each shows is its name; of a normal number x in channel d
  const char* name;
  std::int64_t keys;
  float (*q)(float x, std::int64_t d);
  float (*k)(float x, std::int64_t d);
  float (*v)(float x, std::int64_t d);
};
float as_it_is(float x, std::int64_t) { return x; }
float four_times(float x, std::int64_t) { return 4 * x; }
float outlier_channel(float x, std::int64_t d) { return d == 5 ? 30 * x : x; }
float shifted(float x, std::int64_t) { return x + 4; }

constexpr Data cases[] = {
    {"normal numbers", 512, as_it_is, as_it_is, as_it_is},
    {"many keys", 4096, as_it_is, as_it_is, as_it_is},
    {"scores 4 x as large", 512, four_times, as_it_is, as_it_is},
    {"an outlier channel of K, 30 x", 512, as_it_is, outlier_channel, as_it_is},
    {"an outlier channel of V, 30 x", 512, as_it_is, as_it_is, outlier_channel},
    {"V far from 0 by 4 of its sizes", 512, as_it_is, as_it_is, shifted},
};

Fp8AttentionRow row_of(const Data& data, std::uint64_t seed, Context& outer) {
  Problem p;
  p.len_q = queries;
  p.len_k = data.keys;
  p.head_dim = head_dim;
  Problem p16 = p, p8 = p;
  p16.precision = {DType::bf16};
  p8.precision = {DType::e4m3};
  const Block room(std::size_t(p.k_shape().count()) * 24 + (4u << 20) + std::size_t(outer.workers()) * (1u << 20));
  Arena arena(room.data(), room.bytes());
  Context ctx{.arena = arena, .device = outer.device, .threads = outer.threads};
  struct Three {
    Tensor q, k, v;
  };
  const auto filled = [&](DType type) {
    const auto one = [&](const char* name, const Shape& shape, std::uint64_t stream, float (*of)(float, std::int64_t)) {
      const Tensor t = arena.make(name, type, shape);
      with_float(type, [&]<class T>() {
        for (std::int64_t i = 0; i < t.count(); ++i)
          t.as<T>()[i] = narrow<T>(of(Random{seed}.stream(stream).normal(std::uint64_t(i)), i % head_dim));
      });
      return t;
    };
    return Three{one("q", p.q_shape(), 1, data.q), one("k", p.k_shape(), 2, data.k), one("v", p.v_shape(), 3, data.v)};
  };
  const Three whole = filled(DType::f32), half = filled(DType::bf16);
  const attention::Reference exact = attention::reference(p, whole.q, whole.k, whole.v);
  const Tensor lse = arena.make("lse", DType::f32, p.lse_shape()), o = arena.make("o", DType::bf16, p.o_shape());
  const auto of_o = [&](std::size_t i) { return double(widen(o.as<bf16>()[i])); };
  Fp8AttentionRow r;
  r.data = data.name;
  r.keys = data.keys;
  const attention::Variant& flash = attention::choose(p16, ctx.device, "flash", attention::Pass::forward);
  attention::forward(flash, p16, {.q = half.q, .k = half.k, .v = half.v, .o = o, .lse = lse, .saved = {}, .with = {}}, ctx);
  r.bf16_db = decibels_of(exact.o, of_o);

  const attention::ToFp8 made{.q = whole.q,
                              .k = whole.k,
                              .v = whole.v,
                              .q8 = arena.make("q8", DType::e4m3, p8.q_shape()),
                              .k8 = arena.make("k8", DType::e4m3, p8.k_shape()),
                              .v8 = arena.make("v8", DType::e4m3, p8.v_shape()),
                              .q_scale = arena.make("q_scale", DType::f32, {p.batch, p.heads}),
                              .k_scale = arena.make("k_scale", DType::f32, {p.batch, p.kv_heads}),
                              .v_scale = arena.make("v_scale", DType::f32, {p.batch, p.kv_heads})};
  attention::to_fp8(p8, made, ctx);
  const attention::Extras with{.q_scale = made.q_scale, .k_scale = made.k_scale, .v_scale = made.v_scale};
  const attention::Reference stored = attention::reference(p8, made.q8, made.k8, made.v8, {}, {}, with);
  r.inputs_db = decibels_of(exact.o, [&](std::size_t i) { return stored.o[i]; });
  const attention::Variant& emulated = attention::choose(p8, ctx.device, "", attention::Pass::forward);
  attention::forward(emulated, p8, {.q = made.q8, .k = made.k8, .v = made.v8, .o = o, .lse = lse, .saved = {}, .with = with}, ctx);
  r.kernel_db = decibels_of(stored.o, of_o);
  r.fp8_db = decibels_of(exact.o, of_o);
  for (std::size_t i = 0; i < exact.lse.size(); ++i)
    r.lse_error = std::max(r.lse_error, std::abs(double(lse.as<float>()[i]) - exact.lse[i]));
  return r;
}

}  // namespace

std::vector<Fp8AttentionRow> fp8_attention_rows(std::uint64_t seed, Context& ctx) {
  std::vector<Fp8AttentionRow> rows;
  for (const Data& data : cases) {
    stop_if_interrupted();
    rows.push_back(row_of(data, seed, ctx));
  }
  return rows;
}

}  // namespace headroom::studies::precision
