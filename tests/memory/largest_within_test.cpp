#include "memory/largest_within.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "memory/account.h"

namespace headroom {
namespace {

// Against bisection, for bytes that grow along a line, in steps, ever faster, from some size on, and up to a size that cannot be.
TEST(LargestWithin, IsWhatBisectionFindsAskedOfFewerSizes) {
  std::mt19937_64 random(1);
  const auto up_to = [&](std::uint64_t most) { return 1 + random() % most; };
  std::int64_t asked = 0, asked_near = 0, bisected = 0;
  for (int i = 0; i < 3000; ++i) {
    const std::uint64_t fixed = up_to(10'000'000'000), each = up_to(100'000'000), step = std::uint64_t(1) << up_to(24),
                        square = up_to(10'000);
    const std::uint64_t limit = up_to(200'000'000'000);
    const std::int64_t most = std::int64_t(up_to(3)) * 50'000;
    const auto bytes_of = [&](std::int64_t size) {
      const auto n = std::uint64_t(size);
      switch (i % 6) {
        case 0: return fixed + each * n;
        case 1: return fixed + (each * n + step - 1) / step * step;
        case 2: return fixed + each * n + square * n * n;
        case 3: return fixed + each * ((n + 63) / 64 * 64);
        case 4: return std::max(5 * fixed, fixed + each * n);
        default: return n < 700 ? fixed + each * n : no_memory_holds;
      }
    };
    const auto counted = [&](std::int64_t n) { return ++asked, bytes_of(n); };
    const auto counted_near = [&](std::int64_t n) { return ++asked_near, bytes_of(n); };
    const auto fits = [&](std::int64_t n) { return ++bisected, bytes_of(n) <= limit; };
    const std::int64_t answer = largest(most, fits);
    ASSERT_EQ(largest_within(most, limit, counted), answer) << i;
    const std::int64_t near_by =
        std::max<std::int64_t>(1, answer * std::int64_t(25 + up_to(375)) / 100);  // from a quarter of it to four times
    ASSERT_EQ(largest_within(most, limit, counted_near, near_by), answer) << i << " from " << near_by;
  }
  EXPECT_LT(asked, bisected / 2);
  EXPECT_LT(asked_near, asked * 4 / 5);
}

TEST(LargestWithin, KnowsNothingAndEverything) {
  const auto n_bytes = [](std::int64_t n) { return std::uint64_t(n); };
  EXPECT_EQ(largest_within(0, 100, n_bytes), 0);
  EXPECT_EQ(largest_within(100, 0, n_bytes), 0);
  EXPECT_EQ(largest_within(100, 1, n_bytes), 1);
  EXPECT_EQ(largest_within(100, 1000, n_bytes), 100);
  EXPECT_EQ(largest_within((1ll << 31) - 1, 1000, [](std::int64_t) { return std::uint64_t(5); }), (1ll << 31) - 1);
  EXPECT_EQ(largest_within((1ll << 31) - 1, 1000, [](std::int64_t n) { return n > 17 ? no_memory_holds : 1000; }), 17);
  for (const std::int64_t near_by : {0, 1, 2, 17, 99, 100, 101, 1 << 30}) {
    EXPECT_EQ(largest_within(100, 1000, n_bytes, near_by), 100);
    EXPECT_EQ(largest_within(1000, 100, n_bytes, near_by), 100);
  }
}

}  // namespace
}  // namespace headroom
