#include "gpu/place.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/convert.h"

namespace headroom {
namespace {

TEST(Place, OnTheCpuFillsWithTheCountedNumbersWhoeverMakesThem) {
  Place one(cpu_device(), 1), three(cpu_device(), 3);
  EXPECT_FALSE(one.on_gpu());
  EXPECT_EQ(one.stream(), nullptr);
  const std::int64_t count = 200'001;
  const PlaceMemory a = one.take(std::size_t(count) * 4), b = three.take(std::size_t(count) * 4);
  const Random random{7};
  one.fill_normal({a.data(), DType::f32, {count}}, random, 0.5f);
  three.fill_normal({b.data(), DType::f32, {count}}, random, 0.5f);
  for (std::int64_t i = 0; i < count; ++i) {
    ASSERT_EQ(static_cast<float*>(a.data())[i], 0.5f * random.normal(std::uint64_t(i)));
    ASSERT_EQ(static_cast<float*>(a.data())[i], static_cast<float*>(b.data())[i]);
  }
}

TEST(Place, CopiesOutEveryRowOfAWiderMatrix) {
  const Place here(cpu_device(), 1);
  const std::vector<int> matrix{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  const PlaceMemory held = here.take(matrix.size() * 4);
  here.copy_in(held.data(), matrix.data(), matrix.size() * 4);
  std::vector<int> got(6);
  here.copy_out(got.data(), static_cast<int*>(held.data()) + 1, 8, 3, 16);
  EXPECT_EQ(got, (std::vector<int>{2, 3, 6, 7, 10, 11}));
}

}  // namespace
}  // namespace headroom
