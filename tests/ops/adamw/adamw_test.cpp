// AdamW's sums on the CPU: the norm does not depend on how tensors are cut, and gradients in parts are what their sum is.
#include "ops/adamw/adamw.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/random.h"
#include "gpu/place.h"
#include "memory/block.h"
#include "ops/adamw/exact_sum.h"
#include "ops/gradient_sum/gradient_sum.h"

namespace headroom::adamw {
namespace {

TEST(ExactSum, IsTheSumWhateverTheOrder) {
  const Random random{3};
  std::vector<double> values;
  for (std::uint64_t i = 0; i < 1000; ++i) {  // numbers that FP64 cannot add without rounding
    const float x = std::ldexp(1.0f + float(random.uniform(2 * i)), int(random.below(2 * i + 1, 250)) - 135);
    values.push_back(double(x));
  }
  values.push_back(0x1p-149), values.push_back(0);
  std::int64_t up[ExactSum::limbs] = {}, down[ExactSum::limbs] = {};
  long double sum = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    ExactSum::add(up, values[i]), ExactSum::add(down, values[values.size() - 1 - i]);
    sum += (long double)values[i];
  }
  EXPECT_EQ(ExactSum::value(up, 1), ExactSum::value(down, 1));
  EXPECT_NEAR(double(ExactSum::value(up, 1) / sum), 1, 1e-15);
  std::int64_t parts[2 * ExactSum::limbs] = {};
  for (std::size_t i = 0; i < values.size(); ++i) ExactSum::add(parts + i % 2 * ExactSum::limbs, values[i]);
  EXPECT_EQ(ExactSum::value(parts, 2), ExactSum::value(up, 1));
  std::int64_t tiny[ExactSum::limbs] = {};
  ExactSum::add(tiny, 0x1p-149);
  EXPECT_EQ(ExactSum::value(tiny, 1), 0x1p-149);
  for (const double bad : {double(INFINITY), double(NAN), 0x1p200}) {
    std::int64_t limb[ExactSum::limbs] = {};
    ExactSum::add(limb, 1), ExactSum::add(limb, bad);
    EXPECT_TRUE(std::isinf(ExactSum::value(limb, 1)));
  }
}

struct Bench {
  Device device;
  Threads threads{2};
  headroom::Block memory{1 << 24};
  Arena arena{memory.data(), memory.bytes()};
  Context ctx{arena, device, &threads};
  Tensor normal(std::int64_t n, std::uint64_t seed, DType type = DType::f32) {
    const Tensor t = arena.make("x", type, {n});
    const Random random{seed};
    for (std::int64_t i = 0; i < n; ++i) {
      const float x = random.normal(std::uint64_t(i));
      type == DType::f32 ? void(t.as<float>()[i] = x) : void(t.as<bf16>()[i] = narrow<bf16>(x));
    }
    return t;
  }
  Tensor zeros(std::int64_t n) {
    const Tensor t = arena.make("x", DType::f32, {n});
    std::fill_n(t.as<float>(), n, 0.0f);
    return t;
  }
};

Tensor run(const Tensor& t, std::int64_t first, std::int64_t n) {
  return Tensor(t.as<char>() + first * std::int64_t(size_of(t.dtype)), t.dtype, {n});
}

TEST(AdamwParts, TheNormDoesNotDependOnWhereUnitsAreCut) {
  Bench b;
  const std::int64_t n = 70 * unit + 123;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor g = b.normal(n, 1, type), w = b.normal(n, 2), m = b.zeros(n), v = b.zeros(n), copy = b.normal(n, 3, DType::bf16);
    const auto norm_of = [&](const std::vector<std::int64_t>& cuts, int ranks) {
      const Tensor sums = make_sums(ranks, b.ctx);
      for (int r = 0; r < ranks; ++r) {
        std::vector<Update> mine;
        for (std::size_t i = std::size_t(r); i + 1 < cuts.size(); i += std::size_t(ranks)) {
          const auto from = cuts[i], many = cuts[i + 1] - from;
          mine.push_back({run(g, from, many), run(w, from, many), run(m, from, many), run(v, from, many), run(copy, from, many)});
        }
        squares(mine, sums, r, b.ctx);
      }
      return ExactSum::value(sums.as<std::int64_t>(), ranks);
    };
    const double whole = norm_of({0, n}, 1);
    double expected = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      const double x = type == DType::f32 ? double(g.as<float>()[i]) : double(widen(g.as<bf16>()[i]));
      expected += x * x;
    }
    EXPECT_NEAR(whole / expected, 1, 1e-6);
    EXPECT_EQ(norm_of({0, unit, 20 * unit, 69 * unit, n}, 1), whole);
    EXPECT_EQ(norm_of({0, unit, 20 * unit, 69 * unit, n}, 2), whole);
    EXPECT_EQ(norm_of({0, 0, 64 * unit, 64 * unit, n}, 3), whole);
  }
}

TEST(AdamwParts, GradientsInPartsAreUpdatedAsTheirSumIs) {
  Bench b;
  const std::int64_t n = 3 * unit + 77, apart = 4 * unit;
  for (const DType type : {DType::f32, DType::bf16}) {
    const Tensor parts = b.normal(3 * apart, 5, type), sum = b.zeros(n), state = b.arena.make("state", DType::f64, {state_size});
    gradient_sum::add(run(parts, 0, n), 3, apart, sum, Gradient::overwrite, b.ctx);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = [&](int p) { return type == DType::f32 ? parts.as<float>()[p * apart + i] : widen(parts.as<bf16>()[p * apart + i]); };
      ASSERT_EQ(sum.as<float>()[i], (at(0) + at(1)) + at(2));
    }
    start(state, 1, b.ctx), set_rate(state, 0.1, b.ctx);
    const Tensor numbers = begin(state, {.clip = 0}, b.ctx);
    struct {
      Tensor w, m, v, copy;
    } a{b.normal(n, 6), b.zeros(n), b.zeros(n), b.normal(n, 7, DType::bf16)},
        c{b.normal(n, 6), b.zeros(n), b.zeros(n), b.normal(n, 7, DType::bf16)};
    const Update whole{sum, a.w, a.m, a.v, a.copy};
    Update in_parts{run(parts, 0, n), c.w, c.m, c.v, c.copy};
    in_parts.parts = 3, in_parts.apart = apart;
    for (int step = 0; step < 2; ++step) advance({&whole, 1}, numbers, b.ctx), advance({&in_parts, 1}, numbers, b.ctx);
    for (std::int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(a.w.as<float>()[i], c.w.as<float>()[i]);
      ASSERT_EQ(a.v.as<float>()[i], c.v.as<float>()[i]);
      ASSERT_EQ(a.copy.as<bf16>()[i].bits, c.copy.as<bf16>()[i].bits);
    }
    const Tensor before = b.normal(n, 8), more = b.normal(n, 8);
    gradient_sum::add(run(parts, 0, n), 2, apart, more, Gradient::accumulate, b.ctx);
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = [&](int p) { return type == DType::f32 ? parts.as<float>()[p * apart + i] : widen(parts.as<bf16>()[p * apart + i]); };
      ASSERT_EQ(more.as<float>()[i], (before.as<float>()[i] + at(0)) + at(1));
    }
  }
}

}  // namespace
}  // namespace headroom::adamw
