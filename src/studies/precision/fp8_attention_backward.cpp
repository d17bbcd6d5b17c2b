// The table `attention_backward` of `headroom precision fp8`: dQ, dK and dV of attention whose backward reads some of its operands in 8 bits, against FP64 of
// the numbers before they were rounded. No kernel does this: the table says what one would cost (docs/decisions/fp8-attention-backward.md).
#include <cmath>
#include <vector>

#include "base/convert.h"
#include "base/interrupt.h"
#include "base/random.h"
#include "memory/block.h"
#include "ops/attention/reference.h"
#include "ops/matmul/matmul.h"
#include "ops/quantise/quantise.h"
#include "studies/precision/decibels.h"
#include "studies/precision/fp8.h"
#include "studies/precision/rows.h"

namespace headroom::studies::precision {

namespace {

constexpr std::int64_t len = 256, dim_of_head = 64;

struct Sizes {  // what each shows is its name; of a normal number x
  const char* name;
  float (*q)(float x, std::int64_t row, std::int64_t d);
  float (*v)(float x, std::int64_t row, std::int64_t d);
  float (*d_o)(float x, std::int64_t row, std::int64_t d);
};
float same(float x, std::int64_t, std::int64_t) { return x; }
float moved(float x, std::int64_t, std::int64_t) { return x + 4; }
float four_fold(float x, std::int64_t, std::int64_t) { return 4 * x; }
float loud_channel(float x, std::int64_t, std::int64_t d) { return d == 5 ? 30 * x : x; }
float fading_rows(float x, std::int64_t row, std::int64_t) { return std::ldexp(x, -int(row % 20)); }

constexpr Sizes sizes_of_data[] = {
    {"normal numbers", same, same, same},
    {"scores 4 x as large", four_fold, same, same},
    {"V far from 0 by 4 of its sizes", same, moved, same},
    {"an outlier channel of dO, 30 x", same, same, loud_channel},
    {"dO of rows over 20 binades", same, same, fading_rows},
};

struct Choice {  // the type in which products read an operand: bf16, E4M3 or E5M2
  DType inputs;  // Q, K, V, and P as forward multiplies it
  DType of_dp;   // dO, where dP = dO Vᵀ: a scale a row
  DType p;       // P, where dV = Pᵀ dO, and dO there: a scale to each 128 queries of a channel
  DType of_dv;
  DType ds;                               // dS, where dQ = dS K and dK = dSᵀ Q
  ScaleKind ds_scale = ScaleKind::block;  // 128 × 128 as a kernel's tile could have, or one to the head
};
constexpr DType b16 = DType::bf16, e4 = DType::e4m3, e5 = DType::e5m2;
constexpr Choice choices[] = {
    {b16, b16, b16, b16, b16}, {e4, b16, b16, b16, b16}, {e4, e4, b16, b16, b16},
    {e4, e5, b16, b16, b16},   {e4, b16, e4, e4, b16},   {e4, b16, e4, e5, b16},
    {e4, b16, b16, b16, e4},   {e4, b16, b16, b16, e5},  {e4, b16, b16, b16, e4, ScaleKind::one},
    {e4, e4, e4, e4, e4},      {e4, e5, e4, e5, e5},
};

using Matrix = std::vector<float>;  // [lines, k]
Matrix transposed_of(const Matrix& x, std::int64_t lines) {
  const std::int64_t k = std::int64_t(x.size()) / lines;
  Matrix y(x.size());
  for (std::int64_t i = 0; i < lines; ++i)
    for (std::int64_t j = 0; j < k; ++j) y[std::size_t(j * lines + i)] = x[std::size_t(i * k + j)];
  return y;
}
void round_to_bf16(Matrix& x) {
  for (float& v : x) v = widen(narrow<bf16>(v));
}

struct Operand {  // as a product reads it: 8 bits with scales, or FP32 that holds what 16 bits hold
  Scaled eight = {};
  Tensor wide = {};
};

class Emulation {
 public:
  explicit Emulation(Context& ctx) : ctx_(ctx) {}

  Operand stored(const Matrix& x, std::int64_t lines, DType type, ScaleKind kind) {
    const std::int64_t k = std::int64_t(x.size()) / lines;
    Operand o;
    o.wide = ctx_.arena.make("operand", DType::f32, {lines, k});
    float* const to = o.wide.as<float>();
    std::copy(x.begin(), x.end(), to);
    if (type == DType::bf16) {
      for (std::size_t i = 0; i < x.size(); ++i) to[i] = widen(narrow<bf16>(x[i]));
      return o;
    }
    o.eight = quantise::make("operand", {type, kind}, lines, k, ctx_);
    quantise::quantise({.x = o.wide, .as_is = o.eight}, ctx_);
    quantise::dequantise(o.eight, o.wide, ctx_);
    return o;
  }
  // a [m, k] times b [n, k] transposed: of two operands in 8 bits as Hopper adds, over 128 of k where scales differ along it; else with sums in FP32.
  Matrix product(const Operand& a, const Operand& b, float scale = 1) {
    const std::int64_t m = a.wide.shape[0], n = b.wide.shape[0];
    Matrix c(std::size_t(m * n));
    matmul::Product p{.a = a.wide, .b = matmul::transposed(b.wide), .c = Tensor(c.data(), DType::f32, {m, n})};
    if (a.eight && b.eight) {
      p.a = a.eight;
      p.b = matmul::transposed(b.eight);
      p.adder = matmul::Adder::hopper;
      if (along_k(a.eight.kind) || along_k(b.eight.kind)) p.sums = matmul::Sums::two_level;
    }
    matmul::multiply(p, ctx_);
    for (float& x : c) x *= scale;
    return c;
  }

 private:
  Context& ctx_;
};

struct Gradients {
  Matrix dq, dk, dv;
};

// One head, [n, dim_of_head] each.
Gradients backward(const Choice& c, const Matrix& q, const Matrix& k, const Matrix& v, Matrix d_o, std::int64_t n, float scale,
                   Context& ctx) {
  auto scope = ctx.arena.scope();
  Emulation e(ctx);
  const auto each = [n](Matrix& x, auto&& of_element) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) of_element(x[std::size_t(i * n + j)], i, j);
  };
  using enum ScaleKind;
  round_to_bf16(d_o);  // as the product before wrote it
  const Operand q8 = e.stored(q, n, c.inputs, one), k8 = e.stored(k, n, c.inputs, one), v8 = e.stored(v, n, c.inputs, one),
                q8_across = e.stored(transposed_of(q, n), dim_of_head, c.inputs, one),
                k8_across = e.stored(transposed_of(k, n), dim_of_head, c.inputs, one),
                v8_across = e.stored(transposed_of(v, n), dim_of_head, c.inputs, one);
  Matrix p = e.product(q8, k8, scale);
  for (std::int64_t i = 0; i < n; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < n; ++j) sum += std::exp(double(p[std::size_t(i * n + j)]));
    const auto lse = float(std::log(sum));
    for (std::int64_t j = 0; j < n; ++j) p[std::size_t(i * n + j)] = std::exp(p[std::size_t(i * n + j)] - lse);
  }
  Matrix o = e.product(e.stored(p, n, c.inputs, one), v8_across);
  round_to_bf16(o);
  Matrix delta(std::size_t(n), 0.0f);
  for (std::size_t i = 0; i < o.size(); ++i) delta[i / dim_of_head] += d_o[i] * o[i];
  Gradients g;
  g.dv = e.product(e.stored(transposed_of(p, n), n, c.p, one), e.stored(transposed_of(d_o, n), dim_of_head, c.of_dv, run));
  Matrix ds = e.product(e.stored(d_o, n, c.of_dp, run), v8);
  each(ds, [&](float& x, std::int64_t i, std::int64_t j) { x = p[std::size_t(i * n + j)] * (x - delta[std::size_t(i)]); });
  g.dq = e.product(e.stored(ds, n, c.ds, c.ds_scale), k8_across, scale);
  g.dk = e.product(e.stored(transposed_of(ds, n), n, c.ds, c.ds_scale), q8_across, scale);
  for (Matrix* x : {&g.dq, &g.dk, &g.dv}) round_to_bf16(*x);
  return g;
}

std::string in_words(DType t) { return t == DType::bf16 ? "bf16" : t == DType::e4m3 ? "e4m3" : "e5m2"; }

}  // namespace

std::vector<Fp8AttentionBackwardRow> fp8_attention_backward_rows(std::uint64_t seed, Context& outer) {
  std::vector<Fp8AttentionBackwardRow> rows;
  for (const Sizes& data : sizes_of_data) {
    constexpr std::int64_t n = len;
    const auto filled = [&](std::uint64_t stream, auto&& of) {
      Matrix x(std::size_t(n * dim_of_head));
      for (std::size_t i = 0; i < x.size(); ++i)
        x[i] = of(Random{seed}.stream(stream).normal(i), std::int64_t(i) / dim_of_head, std::int64_t(i) % dim_of_head);
      return x;
    };
    Matrix q = filled(1, data.q), k = filled(2, same), v = filled(3, data.v), d_o = filled(4, data.d_o);
    attention::Problem p;
    p.len_q = p.len_k = n;
    p.head_dim = dim_of_head;
    const auto view = [&](Matrix& x) { return Tensor(x.data(), DType::f32, p.q_shape()); };
    const attention::Reference exact = attention::reference(p, view(q), view(k), view(v), view(d_o));
    const Block room(std::size_t(n * n) * 64 + std::size_t(n) * dim_of_head * 128 + (8u << 20) + std::size_t(outer.workers()) * (2u << 20));
    Arena arena(room.data(), room.bytes());
    Context ctx{.arena = arena, .device = outer.device, .threads = outer.threads};
    for (const Choice& c : choices) {
      stop_if_interrupted();
      const Gradients g = backward(c, q, k, v, d_o, n, p.scale_or_default(), ctx);
      rows.push_back({.data = data.name,
                      .inputs = in_words(c.inputs),
                      .of_dp = in_words(c.of_dp),
                      .of_dv = fmt::format("{} {}", in_words(c.p), in_words(c.of_dv)),
                      .ds = in_words(c.ds) + (c.ds == DType::bf16            ? ""
                                              : c.ds_scale == ScaleKind::one ? " head"
                                                                             : " tile"),
                      .dq_db = decibels_of(exact.dq, [&](std::size_t i) { return g.dq[i]; }),
                      .dk_db = decibels_of(exact.dk, [&](std::size_t i) { return g.dk[i]; }),
                      .dv_db = decibels_of(exact.dv, [&](std::size_t i) { return g.dv[i]; })});
    }
  }
  return rows;
}

}  // namespace headroom::studies::precision
