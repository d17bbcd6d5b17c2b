#include "gpu/fill.h"

#include <algorithm>

#include "base/convert.h"
#include "base/divide.h"
#include "gpu/launch.cuh"

namespace headroom {

namespace {

template <class T>
struct FillArgs {
  T* at;
  std::int64_t count;
  Random random;
  float scale;
};

// fill_normal — writes `count` values; limit: FP64 logarithms and cosines.
template <class T>
__global__ void fill_normal_kernel(const __grid_constant__ FillArgs<T> a) {
  const std::int64_t stride = std::int64_t(gridDim.x) * blockDim.x;
  for (std::int64_t i = std::int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < a.count; i += stride)
    a.at[i] = narrow<T>(a.scale * a.random.normal(std::uint64_t(i)));
}

}  // namespace

void fill_normal(const Tensor& t, Random random, const Stream& s, float scale) {
  check(t.contiguous(), Code::bad_argument, "fill_normal: the tensor must be contiguous");
  if (t.count() == 0) return;
  constexpr int threads = 256;
  const auto blocks = unsigned(std::min<std::int64_t>(ceil_div(t.count(), threads), 1 << 15));
  with_filled(t.dtype, [&]<class T>() {
    launch(cuda_stream(s.raw()), fill_normal_kernel<T>, {dim3(blocks), dim3(threads)}, FillArgs<T>{t.as<T>(), t.count(), random, scale});
  });
}

}  // namespace headroom
