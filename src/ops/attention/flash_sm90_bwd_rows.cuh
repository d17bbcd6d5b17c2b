// flash_sm90_bwd_rows.cuh — what the backward's kernels share: an accumulator's way to global memory, and where a row's statistics lie.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/flash_sm90_bwd.h"

namespace headroom::attention::sm90::backward {

// ---- registers to rows in global memory -----------------------------------------------------------------------------------
// An accumulator [64, n], times `factor`, to rows `row` (this thread's upper one) and row + 8 of a tensor.
template <class T, int n>
__device__ __forceinline__ void store_rows(const float (&d)[n], float factor, T* to, long long row_stride, int row, int rows, int column,
                                           int columns) {
#pragma unroll
  for (int j = 0; j < n / 4; j += 4)
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      std::uint32_t x[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) x[i] = j + i < n / 4 ? pack<T>(d[4 * (j + i) + 2 * r] * factor, d[4 * (j + i) + 2 * r + 1] * factor) : 0;
      transpose_in_quad(x, threadIdx.x % 4);
      const int at = column + 8 * (j + int(threadIdx.x % 4));
      if (row + 8 * r < rows && at < columns)
        *reinterpret_cast<uint4*>(to + (row + 8 * r) * row_stride + at) = make_uint4(x[0], x[1], x[2], x[3]);
    }
}

template <class T>
__device__ __forceinline__ float2 unpack(std::uint32_t x) {
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    return {__uint_as_float(x << 16), __uint_as_float(x & 0xffff0000u)};
  else
    return __half22float2(*reinterpret_cast<__half2*>(&x));
}

// LSE and Δ of 16 rows are stored so that one thread's four lie side by side: rows 2c, 2c+1, 2c+8, 2c+9 at 4c.
__device__ __forceinline__ int stat_at(int row) { return (row & ~15) | (row & 6) << 1 | (row & 8) >> 2 | (row & 1); }
__device__ __forceinline__ float2 half_of(const float4& x, int half) { return half ? float2{x.z, x.w} : float2{x.x, x.y}; }

}  // namespace headroom::attention::sm90::backward
