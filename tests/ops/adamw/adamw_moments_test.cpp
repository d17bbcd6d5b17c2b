// The codes of moments in 8 bits and the rounding of both kinds, and what an update of them refuses.
#include "ops/adamw/moments.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <set>
#include <vector>

#include "base/random.h"

namespace headroom::adamw {
namespace {

TEST(MomentCodes, EveryCodeIsItsOwnValueWhateverTheNoise) {
  for (const float scale : {1.0f, 3e-7f, 0x1p-125f, 7e20f})
    for (std::uint32_t c = 0; c < 256; ++c)
      for (const std::uint32_t noise : {0x10u, 0x8000u, 0xfff0u}) {
        const auto code = std::uint8_t(c);
        const float m = FirstMoment::value(code, scale), v = SecondMoment::value(code, scale);
        if (scale == 0x1p-125f && c > 0) continue;  // values below FP32's normal numbers keep fewer digits
        EXPECT_EQ(FirstMoment::code(m, inverse_of(scale), noise), c) << scale << " " << noise;
        EXPECT_EQ(SecondMoment::code(v, inverse_of(scale), noise), std::max(c, 1u)) << scale << " " << noise;
        EXPECT_GE(v, 0);
      }
  for (std::uint32_t c = 1; c < 256; ++c) {
    EXPECT_LT(SecondMoment::value(std::uint8_t(c - 1), 1), SecondMoment::value(std::uint8_t(c), 1));
    const float below = FirstMoment::value(std::uint8_t(c - 1), 1), here = FirstMoment::value(std::uint8_t(c), 1);
    EXPECT_EQ(std::fabs(below) < std::fabs(here), c != 128) << c;
  }
}

TEST(MomentCodes, RoundingKeepsTheMeanAndAStepIsASixteenthToAnEighth) {
  const Random random{5};
  for (int i = 0; i < 400; ++i) {
    const float x = std::exp2(-12.0f * float(random.uniform(std::uint64_t(i)))) * 0.93f;
    double m = 0, v = 0, h = 0;
    constexpr int many = 1 << 12;
    std::set<std::uint32_t> codes;
    for (std::uint32_t k = 0; k < many; ++k) {
      const std::uint32_t noise = k << 4 | 8;  // all of them, evenly
      m -= double(FirstMoment::value(FirstMoment::code(-x, inverse_of(1), noise), 1));
      v += double(SecondMoment::value(SecondMoment::code(x, inverse_of(1), noise), 1));
      h += double(widen(half_of(x, noise)));
      codes.insert(SecondMoment::code(x, inverse_of(1), noise));
    }
    EXPECT_NEAR(m / many, x, 2e-3 * x);
    EXPECT_NEAR(v / many, x, 2e-4 * x);
    EXPECT_NEAR(h / many, x, 1e-5 * x);
    ASSERT_LE(codes.size(), 2u);
    if (codes.size() == 2) {
      EXPECT_EQ(*codes.rbegin(), *codes.begin() + 1) << x;
      const float step = SecondMoment::value(std::uint8_t(*codes.rbegin()), 1) - SecondMoment::value(std::uint8_t(*codes.begin()), 1);
      EXPECT_LE(step, x * 0.126f);
      EXPECT_GE(step, x * 0.055f);
    }
  }
}

TEST(MomentCodes, ASecondMomentNeverBecomesZeroAndWhatIsNotFiniteIsNotHidden) {
  for (const float x : {1e-38f, 1e-20f, 0x1p-40f, 0x1p-149f}) {
    EXPECT_EQ(SecondMoment::code(x, inverse_of(1), 0), 1);
    EXPECT_GT(SecondMoment::value(1, 1), 0);
  }
  EXPECT_EQ(SecondMoment::code(0, inverse_of(1), 0xffff), 1);
  EXPECT_EQ(FirstMoment::value(FirstMoment::code(0, inverse_of(1), 0xffff), 1), 0);
  EXPECT_TRUE(std::isnan(FirstMoment::Of::scale(NAN)));
  EXPECT_TRUE(std::isinf(FirstMoment::Of::scale(INFINITY)));
  EXPECT_EQ(SecondMoment::Of::scale(0), 0x1p-125f);
  for (const std::uint32_t nan : {0x7fffffffu, 0x7fc00000u, 0xffffffffu, 0x7f800001u})
    EXPECT_TRUE(std::isnan(widen(half_of(float_of(nan), 0xffff))));
  EXPECT_TRUE(std::isinf(widen(half_of(INFINITY, 0xffff))));
}

TEST(MomentNoise, EveryBitOfNeighboursIsEvenAndNoTwoGoTogether) {
  Numbers k{};
  k.random = 77;
  const Noise noise(k, 3);
  constexpr int runs = 1 << 14, bits = 8;  // the highest ones of each, which decide
  std::vector<std::array<int, 2 * Noise::run * bits>> drawn(runs);
  for (int r = 0; r < runs; ++r) {
    std::uint32_t x[Noise::run], half[Noise::run / 2];
    const std::int64_t element = std::int64_t(r) * Noise::run + (std::int64_t(1) << 40);
    noise.of_neighbours(element, x);
    for (int from : {0, Noise::run / 2}) {
      noise.of_neighbours(element + from, half);
      for (int e = 0; e < Noise::run / 2; ++e) ASSERT_EQ(half[e], x[from + e]);
    }
    for (int e = 0; e < Noise::run; ++e)
      for (int b = 0; b < bits; ++b) {
        drawn[std::size_t(r)][std::size_t(2 * e * bits + b)] = Noise::first(x[e]) >> (15 - b) & 1;
        drawn[std::size_t(r)][std::size_t((2 * e + 1) * bits + b)] = Noise::second(x[e]) >> (15 - b) & 1;
      }
  }
  const double sd = std::sqrt(double(runs)) / 2;
  for (std::size_t i = 0; i < drawn[0].size(); ++i)
    for (std::size_t j = 0; j <= i; ++j) {
      int both = 0;
      for (const auto& d : drawn) both += i == j ? d[i] : d[i] ^ d[j];
      EXPECT_NEAR(both, runs / 2, 5.5 * sd) << i << " " << j;
    }
}

TEST(AdamwMomentsAsked, WhatDoesNotBelongTogetherIsRefused) {
  Arena dry;
  const Device cpu;
  Context ctx{dry, cpu};
  const auto t = [](DType type, std::int64_t n) { return Tensor(nullptr, type, {n}); };
  Update u{.grad = t(DType::f32, 300),
           .master = t(DType::f32, 300),
           .m = t(DType::u8, 300),
           .v = t(DType::u8, 300),
           .copy = {},
           .m_scale = t(DType::f32, 2),
           .v_scale = t(DType::f32, 2)};
  const Tensor numbers = t(DType::f32, 11);
  const auto refused = [&](Update one) {
    try {
      advance({&one, 1}, numbers, ctx);
      return false;
    } catch (const Error& e) { return e.at.code == Code::bad_argument; }
  };
  EXPECT_FALSE(refused(u));
  Update x = u;
  x.v = t(DType::bf16, 300);
  EXPECT_TRUE(refused(x));
  x = u, x.m_scale = {};
  EXPECT_TRUE(refused(x));
  x = u, x.first = 100;
  EXPECT_TRUE(refused(x));
  x = u, x.m = x.v = t(DType::bf16, 300);
  EXPECT_TRUE(refused(x)) << "bf16 has no scales";
  x = u, x.m = x.v = t(DType::i32, 300);
  EXPECT_TRUE(refused(x));
}

}  // namespace
}  // namespace headroom::adamw
