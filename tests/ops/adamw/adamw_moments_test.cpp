// The codes of moments in 8 bits and the rounding of both kinds, and what an update of them refuses.
#include "ops/adamw/moments.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/random.h"

namespace headroom::adamw {
namespace {

TEST(MomentCodes, EveryCodeIsItsOwnValueWhateverTheNoise) {
  for (const float scale : {1.0f, 3e-7f, 0x1p-126f, 7e20f})
    for (std::uint32_t c = 0; c < 256; ++c)
      for (const std::uint32_t noise : {0x10u, 0x8000u, 0xfff0u}) {
        const auto code = std::uint8_t(c);
        const float m = FirstMoment::value(code, scale), v = SecondMoment::value(code, scale);
        if (scale == 0x1p-126f && c > 0) continue;  // values below FP32's normal numbers keep fewer digits
        EXPECT_EQ(FirstMoment::code(m, 1 / scale, noise), c) << scale << " " << noise;
        EXPECT_EQ(SecondMoment::code(v, 1 / scale, noise), c) << scale << " " << noise;
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
      m -= double(FirstMoment::value(FirstMoment::code(-x, 1, noise), 1));
      v += double(SecondMoment::value(SecondMoment::code(x, 1, noise), 1));
      h += double(widen(half_of(x, noise)));
      codes.insert(SecondMoment::code(x, 1, noise));
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
    EXPECT_EQ(SecondMoment::code(x, 1, 0), 1);
    EXPECT_GT(SecondMoment::value(1, 1), 0);
  }
  EXPECT_EQ(SecondMoment::code(0, 1, 0xffff), 0);
  EXPECT_EQ(FirstMoment::value(FirstMoment::code(0, 1, 0xffff), 1), 0);
  EXPECT_TRUE(std::isnan(FirstMoment::Of::scale(NAN)));
  EXPECT_TRUE(std::isinf(FirstMoment::Of::scale(INFINITY)));
  EXPECT_EQ(SecondMoment::Of::scale(0), 0x1p-126f);
  for (const std::uint32_t nan : {0x7fffffffu, 0x7fc00000u, 0xffffffffu, 0x7f800001u})
    EXPECT_TRUE(std::isnan(widen(half_of(float_of(nan), 0xffff))));
  EXPECT_TRUE(std::isinf(widen(half_of(INFINITY, 0xffff))));
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
