// Last step of a sum over rows on a GPU: out = Σ over the parts of the first columns of sums [parts, width or more], in a fixed order.
#pragma once
#include "gpu/grid.cuh"
#include "gpu/launch.cuh"
#include "gpu/reduce.cuh"
#include "ops/gradient.h"
#include "ops/parts.h"

namespace headroom::parts {

struct Args {
  const float* sums;
  float* out;
  int count, width;
  std::int64_t stride;  // from a part to the next
  bool add;
};

// parts_sum — 32 columns a block; every 32nd part in a thread, then a warp for each column.
static __global__ void __launch_bounds__(1024) parts_sum(const __grid_constant__ Args a) {
  __shared__ float part[32][33];
  const int x = int(threadIdx.x), y = int(threadIdx.y), first = int(blockIdx.x) * 32;
  float sum = 0;
  if (first + x < a.width) {
#pragma unroll 8
    for (int p = y; p < a.count; p += 32) sum += a.sums[p * a.stride + first + x];
  }
  part[y][x] = sum;
  __syncthreads();
  sum = warp_sum(part[x][y]);
  const int column = first + y;
  if (x == 0 && column < a.width) a.out[column] = a.add ? a.out[column] + sum : sum;
}

inline void add_up(const Tensor& sums, const Parts& parts, const Tensor& out, Gradient into, cudaStream_t stream) {
  const auto width = out.count();
  if (width == 0) return;
  launch(stream, parts_sum, {grid_of((width + 31) / 32), dim3(32, 32)},
         {sums.as<float>(), out.as<float>(), int(parts.count), int(width), sums.stride[0], into == Gradient::accumulate});
}

}  // namespace headroom::parts
