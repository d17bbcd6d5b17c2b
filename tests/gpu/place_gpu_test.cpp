// The same place on a card: numbers, copies, refusals, and a clock that times the work and not its launches.
#include "gpu/place.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/convert.h"
#include "gpu/device.h"
#include "instruments/bench/gpu_timer.h"

namespace headroom {
namespace {

class PlaceGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
    device = cuda_device(0);
  }
  Device device;
};

TEST_F(PlaceGpu, FillsWithTheNumbersOfTheHost) {
  Place there(device), here(cpu_device());
  const std::int64_t count = 3'000'001;
  for (const DType type : {DType::f32, DType::bf16, DType::f16}) {
    const std::size_t size = size_of(type), bytes = std::size_t(count) * size;
    const PlaceMemory a = there.take(bytes), b = here.take(bytes);
    there.fill_normal({a.data(), type, {count}}, Random{3}), here.fill_normal({b.data(), type, {count}}, Random{3});
    std::vector<char> got(bytes);
    there.copy_out(got.data(), a.data(), bytes);
    std::int64_t other = 0;
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = std::size_t(i) * size;
      if (std::memcmp(&got[at], static_cast<char*>(b.data()) + at, size) == 0) continue;
      ++other;
      const double x = load_element(got.data(), type, i), y = load_element(b.data(), type, i);
      ASSERT_NEAR(x, y, std::abs(y) * (size == 4 ? 0x1p-22 : 0x1p-7)) << i;
    }
    EXPECT_LE(other, 3) << name_of(type) << ": a last bit, once in a long while";
  }
}

TEST_F(PlaceGpu, CopiesOutEveryRowOfAWiderMatrix) {
  const Place there(device);
  std::vector<int> matrix(1 << 20), got(std::size_t(3) << 8);
  for (std::size_t i = 0; i < matrix.size(); ++i) matrix[i] = int(i);
  const PlaceMemory held = there.take(matrix.size() * 4);
  there.copy_in(held.data(), matrix.data(), matrix.size() * 4);
  there.copy_out(got.data(), static_cast<int*>(held.data()) + 5, 12, 256, 4096);
  for (std::size_t row = 0; row < 256; ++row)
    for (std::size_t i = 0; i < 3; ++i) ASSERT_EQ(got[3 * row + i], int(1024 * row + 5 + i));
}

TEST_F(PlaceGpu, CopiesWithinTheCard) {
  const Place there(device);
  std::vector<int> x(3'000'004), y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = int(i);
  const PlaceMemory a = there.take(x.size() * 4), b = there.take(x.size() * 4);
  there.copy_in(a.data(), x.data(), x.size() * 4);
  fill_bytes(b.data(), 0xff, x.size() * 4, there.queue());
  copy_on_device(b.data(), a.data(), (x.size() - 4) * 4, there.queue());
  there.copy_out(y.data(), b.data(), y.size() * 4);
  for (std::size_t i = 0; i < x.size(); ++i) ASSERT_EQ(y[i], i < x.size() - 4 ? int(i) : -1);
}

TEST_F(PlaceGpu, ARefusalSaysHowMuchIsFreeAndLeavesTheCardUsable) {
  const Place there(device);
  try {
    there.take(std::size_t(1) << 50);
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.at.code, Code::out_of_memory);
    EXPECT_NE(std::string(e.what()).find("are free"), std::string::npos) << e.what();
  }
  EXPECT_NE(there.take(1 << 20).data(), nullptr);
  EXPECT_LT(free_memory_bytes(device), device.total_bytes);
}

// n bytes set by one call, 2 n by another: twice the time, and for a tiny call less than the host needs to launch one.
TEST_F(PlaceGpu, TheTimerTimesTheWork) {
  const Place there(device);
  const std::size_t bytes = 1u << 30;
  const PlaceMemory held = there.take(2 * bytes);
  const auto ms_of = [&](std::size_t n) {
    return bench::measure([&] { fill_bytes(held.data(), 1, n, there.queue()); }, {.warmup = 1, .steps = 20},
                          bench::gpu_timer(there.queue()))
        .ms.median;
  };
  const double one = ms_of(bytes), two = ms_of(2 * bytes), tiny = ms_of(4096);
  EXPECT_NEAR(two / one, 2, 0.1);
  EXPECT_GT(one, 0.1) << "a GiB in less than 0.1 ms is 10 TB/s";
  EXPECT_LT(tiny, 0.004);
}

}  // namespace
}  // namespace headroom
