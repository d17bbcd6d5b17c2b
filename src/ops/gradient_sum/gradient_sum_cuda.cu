#include <algorithm>

#include "base/divide.h"
#include "gpu/launch.cuh"
#include "gpu/vec.cuh"
#include "ops/gradient_sum/impl.h"

namespace headroom::gradient_sum {

namespace {

constexpr int threads = 256, vec = 4;

struct AddArgs {
  const void* first;
  std::int64_t apart, count;
  float* sum;
  int parts;
  bool keep, aligned;
};

// gradient_sum — sum = the parts of a gradient, added in order in FP32; keep: to what is there.
//   limit  bandwidth
template <class G>
__global__ void __launch_bounds__(threads) gradient_sum(const __grid_constant__ AddArgs a) {
  const G* first = static_cast<const G*>(a.first);
  const std::int64_t stride = std::int64_t(gridDim.x) * threads, at = std::int64_t(blockIdx.x) * threads + threadIdx.x;
  const std::int64_t packs = a.aligned ? a.count / vec : 0;
  for (std::int64_t i = at; i < packs; i += stride) {
    Pack<float, vec> sum;
    if (a.keep) sum = load<vec>(a.sum + i * vec);
    for (int p = 0; p < a.parts; ++p) {
      const auto x = widened(load<vec>(first + p * a.apart + i * vec));
#pragma unroll
      for (int e = 0; e < vec; ++e) sum.at[e] = a.keep || p > 0 ? __fadd_rn(sum.at[e], x.at[e]) : x.at[e];
    }
    store(a.sum + i * vec, sum);
  }
  for (std::int64_t i = packs * vec + at; i < a.count; i += stride) {
    float sum = a.keep ? a.sum[i] : 0;
    for (int p = 0; p < a.parts; ++p) {
      const float x = widened(first[p * a.apart + i]);
      sum = a.keep || p > 0 ? __fadd_rn(sum, x) : x;
    }
    a.sum[i] = sum;
  }
}

}  // namespace

void add_cuda(const Tensor& first, int parts, std::int64_t apart, const Tensor& sum, Gradient into, Context& ctx) {
  const auto begins_whole = [](const void* p) { return reinterpret_cast<std::uintptr_t>(p) % 16 == 0; };
  const AddArgs args{first.data,
                     apart,
                     sum.count(),
                     sum.as<float>(),
                     parts,
                     into == Gradient::accumulate,
                     begins_whole(first.data) && begins_whole(sum.data) && apart * std::int64_t(size_of(first.dtype)) % 16 == 0};
  const auto blocks = std::clamp<std::int64_t>(ceil_div(sum.count(), threads * vec), 1, 4096);
  with_float(first.dtype, [&]<class G>() { launch(cuda_stream(ctx.stream), gradient_sum<G>, {unsigned(blocks), threads}, args); });
}

}  // namespace headroom::gradient_sum
