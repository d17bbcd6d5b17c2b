#include "base/block_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/formats.h"
#include "base/random.h"

namespace headroom {
namespace {

TEST(BlockScale, E8m0IsAPowerOfTwo) {
  for (int bits = 0; bits < 255; ++bits) EXPECT_EQ(widen(e8m0{std::uint8_t(bits)}), std::ldexp(1.0, bits - 127));
  EXPECT_TRUE(std::isnan(widen(e8m0{255})));
}

template <class T>
void expect_scale_rules(double largest_element, int top_exponent) {
  for (int exponent = -149; exponent <= 127; ++exponent)
    for (double significand : {1.0, 1.4375, 1.5, 1.53125, 1.75, 1.75390625, 1.99609375}) {
      const auto largest = float(std::ldexp(significand, exponent));
      const double by_standard = std::max(-127.0, std::floor(std::log2(double(largest))) - top_exponent);
      EXPECT_EQ(std::log2(double(widen(mx_scale<T>(largest, ScaleRule::down)))), by_standard) << largest;
      const double up = widen(mx_scale<T>(largest, ScaleRule::up));
      EXPECT_LE(largest / up, largest_element) << "nothing saturates";
      EXPECT_TRUE(up == 0x1p-127 || largest / (up / 2) > largest_element) << "and the next smaller scale would";
    }
  EXPECT_TRUE(std::isnan(widen(mx_scale<T>(INFINITY, ScaleRule::down))));
  EXPECT_TRUE(std::isnan(widen(mx_scale<T>(NAN, ScaleRule::up))));
}

TEST(BlockScale, MxScalesFollowTheStandard) {
  expect_scale_rules<e4m3>(448, 8);
  expect_scale_rules<e5m2>(57344, 15);
  expect_scale_rules<e2m1>(6, 2);
}

// Values come back within half a place of the element format (of its subnormals below), or half the gap that saturation leaves.
template <class T>
void expect_round_trip(const FloatFormat& f, ScaleRule rule) {
  const Random random{7};
  for (int count : {1, 5, mx_block})
    for (float magnitude : {1e-30f, 1e-3f, 1.0f, 777.0f, 1e30f}) {
      const auto size = std::size_t(count);
      std::vector<float> x(size), back(size);
      std::vector<T> y(size);
      for (int i = 0; i < count; ++i) x[std::size_t(i)] = magnitude * random.normal(std::uint64_t(i));
      const e8m0 scale = mx_encode(x.data(), y.data(), count, rule);
      mx_decode(y.data(), scale, back.data(), count);
      const double s = widen(scale);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double inside = std::fmin(std::fabs(x[i] / s), f.max());
        EXPECT_LE(std::fabs(back[i] / s - std::copysign(inside, x[i])), f.ulp(inside) / 2) << f.name << " " << x[i];
      }
    }
}

TEST(BlockScale, MxValuesComeBackToHalfAPlace) {
  for (auto rule : {ScaleRule::down, ScaleRule::up}) {
    expect_round_trip<e4m3>(format_of<e4m3>("e4m3"), rule);
    expect_round_trip<e5m2>(format_of<e5m2>("e5m2"), rule);
    expect_round_trip<e2m1>(format_of<e2m1>("e2m1"), rule);
  }
}

TEST(BlockScale, ZerosAndNanBlocks) {
  const float zeros[3] = {0, -0.0f, 0};
  float back[3];
  e4m3 y[3];
  mx_decode(y, mx_encode(zeros, y, 3), back, 3);
  for (float b : back) EXPECT_EQ(b, 0);
  const float poisoned[3] = {1, NAN, 2};
  mx_decode(y, mx_encode(poisoned, y, 3), back, 3);
  for (float b : back) EXPECT_TRUE(std::isnan(b));
  e2m1 z[3];
  EXPECT_EQ(nvfp4_tensor_scale(0), 1);
  nvfp4_decode(z, nvfp4_encode(zeros, z, 3, 1), 1, back, 3);
  for (float b : back) EXPECT_EQ(b, 0);
  const float tiny = nvfp4_tensor_scale(0x1p-149f);  // a tensor whose largest value is fp32's smallest
  EXPECT_EQ(tiny, 0);
  nvfp4_decode(z, nvfp4_encode(zeros, z, 3, tiny), tiny, back, 3);
  for (float b : back) EXPECT_EQ(b, 0);
  nvfp4_decode(z, nvfp4_encode(poisoned, z, 3, 1), 1, back, 3);
  for (float b : back) EXPECT_TRUE(std::isnan(b));
}

TEST(BlockScale, Nvfp4UsesItsWholeRangeAndKeepsValuesClose) {
  const Random random{11};
  std::vector<float> x(64), back(64);
  std::vector<e2m1> y(64);
  for (std::size_t i = 0; i < 64; ++i) {
    const std::size_t block = i / nvfp4_block;
    x[i] = 3e-3f * random.normal(i) * float(1 + 10 * block);
  }
  const float largest = largest_magnitude(x.data(), 64), tensor = nvfp4_tensor_scale(largest);
  std::uint8_t top_scale = 0;
  for (std::size_t b = 0; b < 64; b += nvfp4_block) {
    const e4m3 scale = nvfp4_encode(&x[b], &y[b], nvfp4_block, tensor);
    nvfp4_decode(&y[b], scale, tensor, &back[b], nvfp4_block);
    top_scale = std::max(top_scale, scale.bits);
    const double block_largest = largest_magnitude(&x[b], nvfp4_block);
    for (std::size_t i = b; i < b + nvfp4_block; ++i)  // the widest gap of e2m1, 4 to 6, is a third of the largest; e4m3 adds 1/16
      EXPECT_LE(std::fabs(back[i] - x[i]), block_largest * (1.0 / 6 + 1.0 / 16)) << i;
  }
  EXPECT_EQ(top_scale, Bits<e4m3>::max);
}

TEST(BlockScale, TwoFp4ValuesLieInAByte) {
  for (std::uint8_t a = 0; a < 16; ++a)
    for (std::uint8_t b = 0; b < 16; ++b) {
      const std::uint8_t pair = pack(e2m1{a}, e2m1{b});
      ASSERT_EQ(first_of(pair).bits, a);
      ASSERT_EQ(second_of(pair).bits, b);
    }
}

TEST(Formats, TheTableHoldsThePublishedNumbers) {
  const auto named = [](std::string_view name) {
    for (const auto& f : float_formats)
      if (f.name == name) return f;
    throw Error(Code::bad_argument, "no such format in the table");
  };
  EXPECT_EQ(named("fp32").max(), 3.4028234663852886e38);
  EXPECT_EQ(named("fp32").exact_integers(), 16777216);
  EXPECT_EQ(named("tf32").ulp_at_1(), 0.0009765625);
  EXPECT_EQ(named("bf16").max(), 3.3895313892515355e38);
  EXPECT_EQ(named("bf16").exact_integers(), 256);
  EXPECT_EQ(named("bf16").min_subnormal(), std::ldexp(1.0, -133));
  EXPECT_EQ(named("fp16").max(), 65504);
  EXPECT_EQ(named("fp16").min_normal(), std::ldexp(1.0, -14));
  EXPECT_EQ(named("fp16").exact_integers(), 2048);
  EXPECT_EQ(named("e4m3").max(), 448);
  EXPECT_EQ(named("e4m3").min_normal(), std::ldexp(1.0, -6));
  EXPECT_EQ(named("e5m2").max(), 57344);
  EXPECT_EQ(named("e5m2").min_subnormal(), std::ldexp(1.0, -16));
  EXPECT_EQ(named("e2m1").max(), 6);
  EXPECT_EQ(named("e2m1").min_subnormal(), 0.5);
  EXPECT_EQ(named("e2m1").exact_integers(), 4);
  EXPECT_FALSE(named("e4m3").has_infinity);
  EXPECT_FALSE(named("e2m1").has_nan);
  EXPECT_EQ(named("fp16").ulp(31.9), 0x1p-6);
  EXPECT_EQ(named("fp16").ulp(32), 0x1p-5);
  EXPECT_EQ(named("fp16").ulp(0), 0x1p-24);
  EXPECT_EQ(block_formats[0].bytes_per_value(), 1.03125);
  EXPECT_EQ(block_formats[2].bytes_per_value(), 0.53125);
  EXPECT_EQ(block_formats[3].bytes_per_value(), 0.5625);
}

TEST(Formats, EveryFormatIsReachedByItsName) {
  for (const auto& f : float_formats)
    with_format(f.name, [&]<class T>() {
      EXPECT_EQ(widen(narrow<T>(float(f.max()))), f.max()) << f.name;
      EXPECT_EQ(widen(narrow<T>(float(f.min_subnormal()))), f.min_subnormal()) << f.name;
    });
  EXPECT_THROW(with_format("fp7", []<class T>() {}), Error);
}

}  // namespace
}  // namespace headroom
