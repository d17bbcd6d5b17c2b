// What every attention variant is asked in tests, on any device, and the measure of an honest error. A suite makes a Case and its Tensors,
// runs its variant on views of them, calls judge.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/convert.h"
#include "base/random.h"
#include "ops/attention/attention.h"
#include "ops/attention/reference.h"
#include "tests/attention_textbook.h"

namespace headroom::attention::cases {

inline double largest_error(const std::vector<double>& got, const std::vector<double>& expected) {  // ∞ for a NaN or a wrong infinity
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (got[i] == expected[i]) continue;
    const double e = std::abs(got[i] - expected[i]);
    worst = std::isfinite(e) ? std::max(worst, e) : std::numeric_limits<double>::infinity();
  }
  return worst;
}

// error ≤ 2 × the worst honest kernel's + a few units in the last place of what was summed (FP32) and of what was stored; `largest_stored`
// is in units of the latter, on top of the result itself.
inline void expect_within(const char* name, const Case& c, const std::vector<double>& got, const std::vector<double>& expected,
                          double honest_error, double summed, double stored_unit, double largest_stored = 0) {
  double largest = 0;
  for (double e : expected)
    if (std::isfinite(e)) largest = std::max(largest, std::abs(e));
  const double budget = 2 * honest_error + 8 * 0x1p-24 * summed + 2 * stored_unit * (largest + largest_stored) + 1e-30;
  EXPECT_LE(largest_error(got, expected), budget)
      << name << " of " << in_words(c) << "; the worst honest kernel's error is " << honest_error;
}

struct Expected {  // what one case's inputs give, by any variant
  Reference exact;
  std::vector<Textbook> honest;
  bool rounds_p = false;
};
inline Expected expected_of(const Case& c, Tensors& x, bool rounds_p) {
  auto exact = std::async(std::launch::async, [&] {
    return reference(c.problem, x.q.view(), x.k.view(), x.v.view(), c.last == Pass::backward ? x.d_o.view() : Tensor(),
                     c.with_dlse ? x.dlse.view() : Tensor(), extras_of(x));
  });
  auto honest = textbooks(c, x, rounds_p);
  return {exact.get(), std::move(honest), rounds_p};
}

// The same inputs for a kernel that rounds P otherwise: only the honest kernels are others. FP32 rounds no P.
inline void expect_rounding(Expected& expected, const Case& c, Tensors& x, bool rounds_p) {
  if (expected.rounds_p == rounds_p || c.problem.precision == Precision{DType::f32, Math::exact}) return;
  expected.honest = textbooks(c, x, rounds_p);
  expected.rounds_p = rounds_p;
}

// Everything a finished run must satisfy.
inline void judge(const Case& c, Tensors& x, const Expected& expected, bool gradients = true) {
  const Problem& p = c.problem;
  const auto& exact = expected.exact;
  const auto& honest = expected.honest;
  const double unit = p.precision.math == Math::tf32     ? 0x1p-12  // as if results were stored in it
                      : p.precision.dtype == DType::f32  ? 0x1p-24
                      : p.precision.dtype == DType::bf16 ? 0x1p-9
                                                         : 0x1p-12;
  const auto honest_error = [&](const std::vector<double> Textbook::*of, const std::vector<double>& right) {
    double worst = 0;
    for (const Textbook& one : honest) worst = std::max(worst, largest_error(one.*of, right));
    return worst;
  };
  const Textbook& first = honest.front();
  const double amplified = 1 + 0.5 * first.size_s;  // an error of one unit in a score moves its probability by that much
  expect_within("o", c, x.o.values(), exact.o, honest_error(&Textbook::o, exact.o), first.size_o * amplified, unit);
  expect_within("lse", c, x.lse.values(), exact.lse, honest_error(&Textbook::lse, exact.lse), amplified, 0x1p-24);
  if (gradients) {
    expect_within("dq", c, x.dq.values(), exact.dq, honest_error(&Textbook::dq, exact.dq), first.size_dq * amplified, unit,
                  first.stored_o_dq);
    expect_within("dk", c, x.dk.values(), exact.dk, honest_error(&Textbook::dk, exact.dk), first.size_dk * amplified, unit,
                  first.stored_o_dk);
    if (c.problem.sink)
      expect_within("dsink", c, x.dsink.values(), exact.dsink, honest_error(&Textbook::dsink, exact.dsink), first.size_dsink * amplified,
                    0x1p-24);
    expect_within("dv", c, x.dv.values(), exact.dv, honest_error(&Textbook::dv, exact.dv), first.size_dv * amplified, unit);
  }
  for (Guarded* g : x.all()) EXPECT_TRUE(g->guards_intact()) << "a guard band was written: " << in_words(c);
}

inline void judge(const Case& c, Tensors& x, bool rounds_p) { judge(c, x, expected_of(c, x, rounds_p)); }

// A configuration from a number: mostly small, every feature with some probability.
inline Case random_case(std::uint64_t seed) {
  const Random r{seed};
  std::uint64_t n = 0;
  const auto below = [&](std::uint64_t limit) { return std::int64_t(r.below(n++, limit)); };
  const auto length = [&]() -> std::int64_t {
    const auto kind = below(10);
    return kind == 0 ? below(2) : kind < 8 ? 1 + below(40) : 1 + below(150);
  };
  Case c;
  Problem& p = c.problem;
  p.batch = 1 + below(2);
  p.kv_heads = 1 + below(2);
  p.heads = p.kv_heads * (1 + below(3));
  p.len_q = length();
  p.len_k = below(3) == 0 ? p.len_q : length();
  p.head_dim = below(12) == 0 ? 1 + below(256) : 1 + below(40);
  switch (below(5)) {
    case 0: p.mask = Mask::causal(); break;
    case 1: p.mask = Mask::causal(Align::top_left); break;
    case 2: p.mask = Mask::sliding(1 + below(50)); break;
    case 3: p.mask = Mask::sliding(1 + below(50), Align::top_left); break;
    default: break;
  }
  constexpr DType dtypes[] = {DType::f32, DType::f32, DType::bf16, DType::f16};
  p.precision.dtype = dtypes[below(4)];
  if (below(4) == 0) p.scale = 0.1f + 0.1f * float(below(10));
  c.layout = Layout(below(3));
  c.values = below(2) ? Values::normal : Values(below(4));
  if (p.precision.dtype == DType::f16 && c.values != Values::one_hot) c.values = Values::normal;  // ±300 needs more bits than fp16 has
  c.with_dlse = below(2) == 0;
  c.seed = seed;
  p.deterministic = below(2) == 0;
  // What models ask beside that, each with some probability.
  if (below(4) == 0 && p.mask.kind == MaskKind::window) p.mask.ahead = below(30);
  if (below(5) == 0) p.softcap = below(2) ? 0.5f + float(below(40)) : 1e4f;
  if (below(5) == 0) p.sink = true;
  if (below(6) == 0) p.dim_v = 1 + below(40);
  if (below(4) == 0) {
    std::vector<int> q, k;
    const auto count = 1 + below(6);
    for (std::int64_t d = 0; d < count; ++d) {
      q.push_back(int(below(4) == 0 ? 0 : below(30)));
      k.push_back(int(below(3) == 0 ? q.back() : below(30)));
    }
    c = packed(c, q, k, below(3));
  }
  if (below(5) == 0) p.dropout = 0.05f + 0.1f * float(below(9));
  p.alibi = below(6) == 0;
  c.slopes_rank = 1 + int(below(p.documents ? 3 : 2));
  return c;
}

}  // namespace headroom::attention::cases
