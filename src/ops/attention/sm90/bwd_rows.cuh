// bwd_rows.cuh — what the backward's kernels share: an accumulator's way to global memory, where a row's statistics lie, and the
// arithmetic between two products.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/sm90/bwd.h"

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

// ---- transposed scores ----------------------------------------------------------------------------------------------------
// Accumulators [64 keys, rows]: this thread's keys are `key` and key + 8, its rows `row`, row + 1, row + 8, row + 9, …
template <int n>
__device__ __forceinline__ void hide_unseen(float (&scores)[n], const BandOf<int>& band, int key, int row) {
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = key + 8 * r, first = band.open_first_row<numbers>(at) - row,
              end = (at < band.len_k ? band.open_last_row<numbers>(at) : 0) - row;
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (8 * j + e < first || 8 * j + e >= end) scores[4 * j + 2 * r + e] = -INFINITY;
  }
}

template <int n>  // P = exp2(S·c - LSE)
__device__ __forceinline__ void weigh(float (&scores)[n], float scale_log2, const float4 (&lse)[n / 8]) {
#pragma unroll
  for (int j = 0; j < n / 4; ++j) {
    const float2 x = half_of(lse[j / 2], j % 2);
#pragma unroll
    for (int e = 0; e < 4; ++e) scores[4 * j + e] = exp2_fast(fmaf(scores[4 * j + e], scale_log2, -(e % 2 ? x.y : x.x)));
  }
}

template <int n>  // dP starts at -Δ, of which `minus_delta` are this thread's
__device__ __forceinline__ void begin_at(float (&dp)[n], const float* minus_delta) {
#pragma unroll
  for (int i = 0; i < n / 8; ++i) {
    const float4 x = *reinterpret_cast<const float4*>(minus_delta + 16 * i);
    dp[8 * i] = dp[8 * i + 2] = x.x, dp[8 * i + 1] = dp[8 * i + 3] = x.y, dp[8 * i + 4] = dp[8 * i + 6] = x.z,
           dp[8 * i + 5] = dp[8 * i + 7] = x.w;
  }
}

// Two probabilities held to 1: LSE is rounded to FP32, and past scores of about 10⁵ that alone would make them larger. A NaN stays one.
template <class T>
__device__ __forceinline__ std::uint32_t at_most_one(std::uint32_t p) {
  std::uint32_t x;
  if constexpr (std::is_same_v<T, __nv_bfloat16>)
    asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(x) : "r"(p), "r"(0x3f803f80));
  else
    asm("min.NaN.f16x2 %0, %1, %2;" : "=r"(x) : "r"(p), "r"(0x3c003c00));
  return x;
}

__device__ __forceinline__ float at_most_one(float p) {
  float x;
  asm("min.NaN.f32 %0, %1, 0f3f800000;" : "=f"(x) : "f"(p));
  return x;
}

template <class T>  // dS = P ∘ (dP - Δ) of four pairs
__device__ __forceinline__ void differentiate(std::uint32_t (&ds)[4], const std::uint32_t (&p)[4], const float* dp) {
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    const float2 w = unpack<T>(p[f]);
    ds[f] = pack<T>(w.x * dp[2 * f], w.y * dp[2 * f + 1]);
  }
}

}  // namespace headroom::attention::sm90::backward
