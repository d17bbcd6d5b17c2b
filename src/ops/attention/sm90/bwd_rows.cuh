// bwd_rows.cuh — what the backward's kernels share: an accumulator's way to global memory, where a row's statistics lie, and the
// arithmetic between two products.
#pragma once
#include "gpu/mma.cuh"
#include "ops/attention/mend/mend.cuh"
#include "ops/attention/sm90/bwd.h"
#include "ops/attention/sm90/capping.cuh"

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

// Positions of an accumulator [64, dim]'s rows turned back by rope's table: element i of a row's first half is in the same thread as its partner.
template <int n>
__device__ __forceinline__ void turn_back(float (&d)[n], const float* table, int row, int rows) {
  constexpr int dim = 2 * n, half = dim / 2, apart = n / 2;  // apart: registers from an element to its partner
  static_assert(half % 8 == 0);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const float* const at = table + std::int64_t(min(row + 8 * r, rows - 1)) * dim + threadIdx.x % 4 * 2;
#pragma unroll
    for (int j = 0; j < half / 8; ++j) {
      const float2 cosine = *reinterpret_cast<const float2*>(at + 8 * j), sine = *reinterpret_cast<const float2*>(at + half + 8 * j);
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const float c = e ? cosine.y : cosine.x, s = e ? sine.y : sine.x;
        float &first = d[4 * j + 2 * r + e], &second = d[4 * j + 2 * r + e + apart];
        const float p = first, q = second;
        first = p * c + q * s, second = q * c - p * s;
      }
    }
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
template <Reach reach, bool capped, int n>
__device__ __forceinline__ void hide_unseen(float (&scores)[n], const BandOf<int>& all, int batch, int key, int key_end, int row) {
  const BandOf<int> band = band_in<reach>(all, batch);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int at = key + 8 * r, there = reach == Reach::listed ? min(at, band.len_k - 1) : at;
    const int first = band.open_first_row<reach>(there) - row, end = (at < key_end ? band.open_last_row<reach>(there) : 0) - row;
#pragma unroll
    for (int j = 0; j < n / 4; ++j)
#pragma unroll
      for (int e = 0; e < 2; ++e)
        if (8 * j + e < first || 8 * j + e >= end) scores[4 * j + 2 * r + e] = capped ? hidden_tanh : -INFINITY;
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

// Whether any row's |LSE| is past far_lse, asked by all threads of a block instead of their __syncthreads.
__device__ __forceinline__ bool meet_and_ask(const Far& far) {
  std::uint32_t any = 0;
  for (int i = threadIdx.x; i < far_bytes(far.count) / 16; i += blockDim.x) {
    const uint4 x = reinterpret_cast<const uint4*>(far.blocks)[i];
    any |= x.x | x.y | x.z | x.w;
  }
  return __syncthreads_or(any != 0);
}

// Then probabilities are held to 1 (or what stands for it): LSE is rounded to FP32, and past scores of about 10⁵ that alone would make them larger. A NaN stays one.
// The branch does more than skip: ptxas would otherwise pack two values right behind their two exponentials and wait for each, and it would move a wait
// for products, which these do not need, in front of the exponentials (bench/lab/attention_bwd.md).
template <int n>
__device__ __forceinline__ void hold_to_one(float (&p)[n], bool hold, float one = 1) {
  if (hold) {
#pragma unroll
    for (int i = 0; i < n; ++i) asm("min.NaN.f32 %0, %0, %1;" : "+f"(p[i]) : "f"(one));
  }
}

// Capped scores, which are tanhs by now: P, rounded, and put(i, P · (1 - tanh²) of i and of i + 1). Some at a time: exponentials, the branch of hold_to_one,
// and then the packing.
template <class T, int n, class Put>
__device__ __forceinline__ void weigh_capped(std::uint32_t (&p)[n / 8][4], const float (&scores)[n], float cap_log2,
                                             const float4 (&lse)[n / 8], bool hold, float one, Put&& put) {
  constexpr int at_once = 32;
#pragma unroll
  for (int from = 0; from < n; from += at_once) {
    float w[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const float2 x = half_of(lse[(from + i) / 8], i / 4 % 2);
      w[i] = exp2_fast(fmaf(scores[from + i], cap_log2, -(i % 2 ? x.y : x.x)));
    }
    hold_to_one(w, hold, one);
#pragma unroll
    for (int i = 0; i < at_once; i += 2) {
      const float t = scores[from + i], u = scores[from + i + 1];
      p[(from + i) / 8][i / 2 % 4] = pack<T>(w[i], w[i + 1]);
      put(from + i, w[i] * fmaf(-t, t, 1), w[i + 1] * fmaf(-u, u, 1));
    }
  }
}

template <class T>
__device__ __forceinline__ void multiply(float* dp, const std::uint32_t (&p)[4]) {
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    const float2 w = unpack<T>(p[f]);
    dp[2 * f] *= w.x, dp[2 * f + 1] *= w.y;
  }
}
// Dropout: dS = P ∘ Z ∘ dP - P ∘ Δ, where Z is 0 or 1; of_delta is the inverse of the factor, by which the sums grow at the end. `minus_delta`: of four rows.
template <class T>
__device__ __forceinline__ void multiply_dropped(float* dp, const std::uint32_t (&kept)[4], const std::uint32_t (&p)[4],
                                                 const float4& minus_delta, float of_delta) {
#pragma unroll
  for (int f = 0; f < 4; ++f) {
    const float2 z = unpack<T>(kept[f]), w = unpack<T>(p[f]), x = half_of(minus_delta, f / 2);
    dp[2 * f] = fmaf(w.x, x.x * of_delta, dp[2 * f] * z.x), dp[2 * f + 1] = fmaf(w.y, x.y * of_delta, dp[2 * f + 1] * z.y);
  }
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
