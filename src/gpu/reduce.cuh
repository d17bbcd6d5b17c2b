// Sums and maxima over a block's threads, in a fixed order: the same bits every run. Every thread calls and gets the result.
#pragma once

namespace headroom {

template <class T>
__device__ T warp_sum(T x) {
#pragma unroll
  for (int step = 16; step; step /= 2) x += __shfl_xor_sync(~0u, x, step);
  return x;
}

// Whole warps, at most 32. `room` holds 32 values of T; it may be used again after another barrier.
template <class T>
__device__ T block_sum(T x, T* room) {
  x = warp_sum(x);
  if (blockDim.x == 32) return x;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  x = threadIdx.x % 32 < blockDim.x / 32 ? room[threadIdx.x % 32] : T(0);
  return warp_sum(x);
}

__device__ inline float block_max(float x, float* room) {  // NaN only if all are
#pragma unroll
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  if (blockDim.x == 32) return x;
  if (threadIdx.x % 32 == 0) room[threadIdx.x / 32] = x;
  __syncthreads();
  x = room[threadIdx.x % (blockDim.x / 32)];
#pragma unroll
  for (int step = 16; step; step /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, step));
  return x;
}

}  // namespace headroom
