#include "ops/copy/split.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/random.h"

namespace headroom::copy {
namespace {

TEST(Split, TheValueIsFoundAgainToTheBitAndTheHalfIsTheNearestBf16) {
  const Random random{11};
  for (std::uint64_t i = 0; i < 2'000'000; ++i) {
    const auto bits = std::uint32_t(random.bits(i));
    const float x = float_of(bits);
    const Halves h = split(x);
    ASSERT_EQ(bits_of(join(h)), bits);
    if (!std::isfinite(x) || std::abs(x) > 3.3e38f) continue;
    ASSERT_LE(std::abs(double(widen(h.upper)) - double(x)), std::abs(double(widen(narrow<bf16>(x))) - double(x))) << x;
  }
  EXPECT_EQ(split(float_of(0x3f808000)).upper.bits, 0x3f81);  // between two: away from zero
  EXPECT_EQ(split(float_of(0xbf808000)).upper.bits, 0xbf81);
  EXPECT_EQ(split(float_of(0x3f807fff)).upper.bits, 0x3f80);
}

}  // namespace
}  // namespace headroom::copy
