// The last step of a sum over rows on a GPU: out = Σ over the parts of sums [parts, width], in a fixed order.
#pragma once
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "ops/gradient.h"
#include "ops/parts.h"

namespace headroom::parts {

struct Args {
  const float* sums;
  float* out;
  int count, width;
  bool add;
};

constexpr int lanes = 8;

// parts_sum — 32 columns a block; every 8th part in a thread, then the threads in order.
static __global__ void __launch_bounds__(32 * lanes) parts_sum(const __grid_constant__ Args a) {
  __shared__ float part[lanes][32];
  const int column = int(blockIdx.x) * 32 + int(threadIdx.x);
  float sum = 0;
  if (column < a.width) {
#pragma unroll 8
    for (int p = int(threadIdx.y); p < a.count; p += lanes) sum += a.sums[std::int64_t(p) * a.width + column];
  }
  part[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || column >= a.width) return;
  for (int p = 1; p < lanes; ++p) sum += part[p][threadIdx.x];
  a.out[column] = a.add ? a.out[column] + sum : sum;
}

inline void add_up(const Tensor& sums, const Parts& parts, const Tensor& out, Gradient into, cudaStream_t stream) {
  const auto width = out.count();
  if (width == 0) return;
  launch(stream, parts_sum, {grid_of((width + 31) / 32), dim3(32, lanes)},
         {sums.as<float>(), out.as<float>(), int(parts.count), int(width), into == Gradient::accumulate});
}

}  // namespace headroom::parts
