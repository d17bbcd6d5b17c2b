// base/convert.h on the device gives the host's bits: every code of the small formats widened, and fp32 patterns all over the range narrowed.
#include <gtest/gtest.h>

#include <vector>

#include "base/convert.h"
#include "gpu/buffer.h"
#include "gpu/device.h"
#include "gpu/launch.cuh"

namespace headroom {
namespace {

constexpr std::uint32_t stride = 251;  // odd, so the patterns n · stride walk over every exponent, sign and low digit
constexpr std::uint32_t patterns = 0xffffffffu / stride;

struct Args {
  std::uint32_t count;
  std::uint32_t *narrowed, *saturated, *stochastic, *widened;
};

HEADROOM_CONVERT std::uint32_t code(std::uint32_t n) { return n * stride; }

template <class T>
HEADROOM_CONVERT void convert_one(std::uint32_t n, const Args& a) {
  const float x = float_of(code(n));
  const auto bits = [](T value) { return std::uint32_t(value.bits); };
  a.narrowed[n] = bits(narrow<T>(x));
  a.saturated[n] = bits(narrow_saturating<T>(x));
  a.stochastic[n] = bits(narrow_stochastic<T>(x, n * 2654435761u));
  T same{};
  same.bits = decltype(same.bits)(n);
  a.widened[n] = bits_of(widen(same));
}

template <class T>
__global__ void convert_all(Args a) {
  for (std::uint32_t n = blockIdx.x * blockDim.x + threadIdx.x; n < a.count; n += gridDim.x * blockDim.x) convert_one<T>(n, a);
}

template <class T>
class ConvertGpu : public testing::Test {};
using Formats = testing::Types<bf16, f16, e4m3, e5m2>;
TYPED_TEST_SUITE(ConvertGpu, Formats);

TYPED_TEST(ConvertGpu, SameBitsAsTheHost) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device, or no GPU kernels beside this program";
  const Stream stream(0);
  const std::size_t bytes = std::size_t(patterns) * 4;
  Buffer there[4] = {Buffer(bytes), Buffer(bytes), Buffer(bytes), Buffer(bytes)};
  for (const Buffer& b : there) fill_bytes(b.data(), 0xcd, bytes, stream);
  const auto at = [&](int i) { return static_cast<std::uint32_t*>(there[i].data()); };
  launch(static_cast<cudaStream_t>(stream.raw()), convert_all<TypeParam>, {dim3(1024), dim3(256)},
         Args{patterns, at(0), at(1), at(2), at(3)});

  std::vector<std::uint32_t> device[4], host[4];
  for (int i = 0; i < 4; ++i) {
    device[i].resize(patterns), host[i].resize(patterns);
    copy_to_host(device[i].data(), there[i].data(), bytes, stream);
  }
  stream.wait();
  const Args here{patterns, host[0].data(), host[1].data(), host[2].data(), host[3].data()};
  for (std::uint32_t n = 0; n < patterns; ++n) convert_one<TypeParam>(n, here);
  const char* const names[4] = {"narrow", "narrow_saturating", "narrow_stochastic", "widen"};
  for (int i = 0; i < 4; ++i)
    for (std::uint32_t n = 0; n < patterns; ++n)
      ASSERT_EQ(device[i][n], host[i][n]) << names[i] << " of " << std::hex << (i == 3 ? n : code(n));
}

}  // namespace
}  // namespace headroom
