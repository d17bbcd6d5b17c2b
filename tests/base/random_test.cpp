#include "base/random.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

// Logarithm and cosine are our own, so that their bits are the same everywhere; here they are held against the library's.
TEST(Random, NormalNumbersAreBoxAndMullers) {
  const Random random = Random{5}.stream(2);
  for (std::uint64_t i = 0; i < 300000; ++i) {
    const double u = 1.0 - random.uniform(2 * i), v = random.uniform(2 * i + 1);
    const double expected = std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
    ASSERT_NEAR(random.normal(i), expected, 0x1p-24 * std::fabs(expected) + 1e-14) << i;
  }
}

TEST(Random, NormalNumbersHaveTheirMoments) {
  const Random random{8};
  constexpr int count = 1 << 20;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < count; ++i) {
    const double x = random.normal(std::uint64_t(i));
    sum += x, squares += x * x, fourth += x * x * x * x;
  }
  EXPECT_NEAR(sum / count, 0, 5 / std::sqrt(count));
  EXPECT_NEAR(squares / count, 1, 5 * std::sqrt(2.0 / count));
  EXPECT_NEAR(fourth / count, 3, 5 * std::sqrt(96.0 / count));
}

}  // namespace
}  // namespace headroom
