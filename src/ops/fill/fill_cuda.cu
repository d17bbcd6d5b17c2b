// Compiled without contraction of products and sums (cmake/cuda.cmake): the bits are the CPU's.
#include <algorithm>

#include "base/divide.h"
#include "gpu/launch.cuh"
#include "ops/fill/impl.h"

namespace headroom::fill {

namespace {

constexpr int threads = 256;

struct Args {
  float* to;
  std::int64_t count;
  Random random;
  double mean, std;        // std 0: the mean alone
  std::int64_t first = 0;  // the number of to[0]
};

__global__ void __launch_bounds__(threads) fill_values(const __grid_constant__ Args a) {
  for (std::int64_t i = std::int64_t(blockIdx.x) * threads + threadIdx.x; i < a.count; i += std::int64_t(gridDim.x) * threads)
    a.to[i] = float(a.std == 0 ? a.mean : a.mean + a.std * double(a.random.normal(std::uint64_t(a.first + i))));
}

void start(const Args& args, Context& ctx) {
  if (args.count == 0) return;
  const auto blocks = std::min<std::int64_t>(ceil_div(args.count, threads), 1 << 16);
  launch(cuda_stream(ctx.stream), fill_values, {unsigned(blocks), threads}, args);
}

}  // namespace

void constant_cuda(const Tensor& t, double value, Context& ctx) { start({t.as<float>(), t.count(), {}, value, 0}, ctx); }

void normal_cuda(const Tensor& t, const Random& random, double mean, double std, std::int64_t first, Context& ctx) {
  start({t.as<float>(), t.count(), random, mean, std, first}, ctx);
}

}  // namespace headroom::fill
