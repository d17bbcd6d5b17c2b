// Every conversion against an oracle that shares nothing with it: the sorted list of a format's values in double, built
// from (exponent bits, mantissa bits, largest value) by ldexp, and a search for the nearest.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "base/convert.h"
#include "base/random.h"

namespace headroom {
namespace {

constexpr double infinity = std::numeric_limits<double>::infinity();

struct Oracle {
  std::vector<double> values;  // values[code] for code = 0 … largest finite
  double beyond;               // the value one place above the largest finite one, if the exponent went on
  bool has_infinity, has_nan;

  Oracle(int exponent_bits, int mantissa_bits, double largest, bool infinite, bool nan) : has_infinity(infinite), has_nan(nan) {
    const int bias = (1 << (exponent_bits - 1)) - 1, per_binade = 1 << mantissa_bits;
    for (int code = 0;; ++code) {
      const int binade = code / per_binade, m = code % per_binade;
      beyond = std::ldexp(double(m) / per_binade + (binade > 0), std::max(binade, 1) - bias);
      if (beyond > largest) return;
      values.push_back(beyond);
    }
  }

  double nearest(double x, bool saturate) const {  // magnitude in, magnitude out
    if (std::isnan(x)) return has_nan ? x : values.back();
    const double past = saturate || !(has_infinity || has_nan) ? values.back() : has_infinity ? infinity : std::nan("");
    if (std::isinf(x)) return past;
    const auto above = std::lower_bound(values.begin(), values.end(), x);
    if (above != values.end() && *above == x) return x;
    const std::size_t code = std::size_t(above - values.begin());  // the upper neighbour's; at least 1, as 0 is a value
    const double high = above == values.end() ? beyond : *above, low = values[code - 1];
    const double middle = (low + high) / 2;
    const bool up = x > middle || (x == middle && code % 2 == 0);
    if (!up) return low;
    return above == values.end() ? past : high;
  }
};

template <class T>
struct Case;
template <>
struct Case<tf32> {
  static Oracle oracle() { return {8, 10, std::ldexp(2 - std::ldexp(1.0, -10), 127), true, true}; }
};
template <>
struct Case<bf16> {
  static Oracle oracle() { return {8, 7, 3.3895313892515355e38, true, true}; }
};
template <>
struct Case<f16> {
  static Oracle oracle() { return {5, 10, 65504, true, true}; }
};
template <>
struct Case<e4m3> {
  static Oracle oracle() { return {4, 3, 448, false, true}; }
};
template <>
struct Case<e5m2> {
  static Oracle oracle() { return {5, 2, 57344, true, true}; }
};
template <>
struct Case<e2m1> {
  static Oracle oracle() { return {2, 1, 6, false, false}; }
};

void expect_same(double got, double expected, float from, const char* what) {
  if (std::isnan(expected))
    ASSERT_TRUE(std::isnan(got)) << what << " of " << from << " (" << bits_of(from) << ")";
  else
    ASSERT_EQ(got, expected) << what << " of " << from << " (" << bits_of(from) << ")";
}

template <class T>
class Narrowing : public ::testing::Test {};
using Small = ::testing::Types<tf32, bf16, f16, e4m3, e5m2, e2m1>;
TYPED_TEST_SUITE(Narrowing, Small);

template <class T>
T of_code(std::uint32_t code) {
  return {typename Bits<T>::Word(code << Bits<T>::shift)};
}
template <class T>
std::uint32_t code_of(T x) {
  return std::uint32_t(x.bits) >> Bits<T>::shift;
}

TYPED_TEST(Narrowing, EveryCodeWidensToItsValueAndComesBack) {
  using T = TypeParam;
  const Oracle oracle = Case<T>::oracle();
  const int sign_at = Bits<T>::exponent + Bits<T>::mantissa;
  for (std::uint32_t code = 0; code < 2u << sign_at; ++code) {
    const std::uint32_t magnitude = code & ((1u << sign_at) - 1);
    const bool negative = code >> sign_at;
    const float wide = widen(of_code<T>(code));
    if (magnitude < oracle.values.size()) {
      ASSERT_EQ(wide, negative ? -oracle.values[magnitude] : oracle.values[magnitude]) << code;
      ASSERT_EQ(std::signbit(wide), negative) << code;
      ASSERT_EQ(code_of(narrow<T>(wide)), code);
      ASSERT_EQ(code_of(narrow_saturating<T>(wide)), code);
      ASSERT_EQ(code_of(narrow_stochastic<T>(wide, 0xffffffff)), code) << "a value of the format has nothing to round";
    } else if (oracle.has_infinity && magnitude == oracle.values.size()) {
      ASSERT_TRUE(std::isinf(wide) && std::signbit(wide) == negative) << code;
      ASSERT_EQ(code_of(narrow<T>(wide)), code);
    } else {
      ASSERT_TRUE(std::isnan(wide)) << code;
      ASSERT_TRUE(std::isnan(widen(narrow<T>(wide)))) << code;
      ASSERT_TRUE(std::isnan(widen(narrow_saturating<T>(wide)))) << code;
    }
  }
}

TYPED_TEST(Narrowing, TiesAndTheirNeighboursGoWhereTheOracleSays) {
  using T = TypeParam;
  const Oracle oracle = Case<T>::oracle();
  for (std::size_t i = 0; i < oracle.values.size(); ++i) {
    const double high = i + 1 < oracle.values.size() ? oracle.values[i + 1] : oracle.beyond;
    const auto middle = float((oracle.values[i] + high) / 2);
    if (std::isinf(middle)) continue;
    for (float x : {middle, std::nextafterf(middle, 0.0f), std::nextafterf(middle, INFINITY)})
      for (float sign : {1.0f, -1.0f}) {
        expect_same(sign * widen(narrow<T>(sign * x)), oracle.nearest(x, false), x, "narrow");
        expect_same(sign * widen(narrow_saturating<T>(sign * x)), oracle.nearest(x, true), x, "narrow_saturating");
      }
  }
}

TYPED_TEST(Narrowing, AnyFp32AgreesWithTheOracleAndWithTheGeneralWay) {
  using T = TypeParam;
  const Oracle oracle = Case<T>::oracle();
  for (std::uint64_t u = 0; u < 1ull << 32; u += 2039) {  // a prime: 2.1 million patterns, every exponent, both signs
    const float x = float_of(std::uint32_t(u)), magnitude = std::fabs(x);
    const double sign = std::signbit(x) && (oracle.has_nan || !std::isnan(x)) ? -1 : 1;  // NaN becomes +6 in e2m1
    expect_same(sign * widen(narrow<T>(x)), oracle.nearest(magnitude, false), x, "narrow");
    expect_same(sign * widen(narrow_saturating<T>(x)), oracle.nearest(magnitude, true), x, "narrow_saturating");
    if (!std::isnan(x)) {
      ASSERT_EQ(code_of(narrow<T>(x)), code_of(convert::narrow_by<T>(x, convert::ToNearestEven{}, false))) << u;
      ASSERT_EQ(std::signbit(widen(narrow<T>(x))), std::signbit(x)) << u;
    }
  }
}

TYPED_TEST(Narrowing, TheEdges) {
  using T = TypeParam;
  const Oracle oracle = Case<T>::oracle();
  for (float x : {0.0f, -0.0f, INFINITY, -INFINITY, 3.4028235e38f, -3.4028235e38f, 1e-45f, 1.17549421e-38f}) {
    const double sign = std::signbit(x) ? -1 : 1;
    expect_same(sign * widen(narrow<T>(x)), oracle.nearest(std::fabs(x), false), x, "narrow");
    expect_same(sign * widen(narrow_saturating<T>(x)), oracle.nearest(std::fabs(x), true), x, "narrow_saturating");
  }
  for (std::uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7f800001u, 0xffffffffu, 0x7f802000u}) {
    const float got = widen(narrow<T>(float_of(nan))), saturated = widen(narrow_saturating<T>(float_of(nan)));
    EXPECT_TRUE(oracle.has_nan ? std::isnan(got) && std::isnan(saturated) : got == 6 && saturated == 6) << nan;
  }
}

TYPED_TEST(Narrowing, StochasticRoundingGoesToANeighbourAndKeepsTheMean) {
  using T = TypeParam;
  const Oracle oracle = Case<T>::oracle();
  const std::size_t step = std::max<std::size_t>(1, oracle.values.size() / 200);
  for (std::size_t i = 0; i + 1 < oracle.values.size(); i += step)
    for (double part : {0.25, 0.5, 0.8125}) {
      const double low = oracle.values[i], high = oracle.values[i + 1];
      const auto x = float(low + part * (high - low));
      const double truth = (double(x) - low) / (high - low);  // fp32's own subnormals cannot hold every part
      const int draws = 256;
      int ups = 0;
      for (int d = 0; d < draws; ++d) {  // random bits that walk all of 2³² evenly: the mean is exact to one draw
        const double got = widen(narrow_stochastic<T>(x, std::uint32_t(d) << 24 | 0x800000));
        ASSERT_TRUE(got == low || got == high) << x << " became " << got;
        ups += got == high;
      }
      ASSERT_NEAR(double(ups) / draws, truth, 1.0 / draws) << "between " << low << " and " << high;
    }
}

TEST(Conversion, Fp32IsItself) {
  for (std::uint64_t u = 0; u < 1ull << 32; u += 65537) {
    const float x = float_of(std::uint32_t(u));
    ASSERT_EQ(bits_of(narrow<float>(x)), u);
    ASSERT_EQ(bits_of(narrow_stochastic<float>(x, 7)), u);
    ASSERT_TRUE(std::isinf(x) || bits_of(narrow_saturating<float>(x)) == u);
  }
  EXPECT_EQ(narrow_saturating<float>(-INFINITY), -std::numeric_limits<float>::max());
}

TEST(Conversion, KnownValues) {  // from the formats' definitions, so that a shared mistake of code and oracle shows
  EXPECT_EQ(narrow<f16>(65519.996f).bits, 0x7bff);
  EXPECT_EQ(narrow<f16>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(narrow<f16>(0x1p-24f).bits, 1);
  EXPECT_EQ(narrow<f16>(0x1p-25f).bits, 0) << "a tie with zero goes to zero";
  EXPECT_EQ(narrow<f16>(std::nextafterf(0x1p-25f, 1.0f)).bits, 1);
  EXPECT_EQ(narrow<bf16>(1.00390625f).bits, 0x3f80) << "1 + half an ulp";
  EXPECT_EQ(narrow<bf16>(1.01171875f).bits, 0x3f82) << "1 + an ulp and a half";
  EXPECT_EQ(narrow<e4m3>(448.0f).bits, 0x7e);
  EXPECT_EQ(narrow<e4m3>(464.0f).bits, 0x7e) << "the tie with the missing 480 goes to the even 448";
  EXPECT_EQ(narrow<e4m3>(464.01f).bits, 0x7f);
  EXPECT_EQ(narrow<e4m3>(-INFINITY).bits, 0xff);
  EXPECT_EQ(narrow_saturating<e4m3>(-INFINITY).bits, 0xfe);
  EXPECT_EQ(narrow<e5m2>(57344.0f).bits, 0x7b);
  EXPECT_EQ(narrow<e5m2>(61440.0f).bits, 0x7c);
  EXPECT_EQ(narrow_saturating<e5m2>(61440.0f).bits, 0x7b);
  EXPECT_EQ(widen(e4m3{0x01}), 0x1p-9f);
  EXPECT_EQ(widen(e5m2{0x01}), 0x1p-16f);
  const float fp4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (std::uint8_t i = 0; i < 8; ++i) EXPECT_EQ(widen(e2m1{i}), fp4[i]);
  EXPECT_EQ(round_to_tf32(1.0f + 0x1p-11f), 1.0f);
  EXPECT_EQ(round_to_tf32(1.0f + 3 * 0x1p-11f), 1.0f + 0x1p-9f);
  EXPECT_EQ(round_to_tf32(0x1.ffffp127f), INFINITY);
}

}  // namespace
}  // namespace headroom
